"""The key of the tests: a good one, as weaker ones are refused. It is no secret, and nothing else has it."""

from typing import Final

TEST_KEY: Final = "5b1f0c1f6d7a4e0e9c3b8a2d7e6f4051b2c3d4a5968778695a4b3c2d1e0f9a8b"
OTHER_KEY: Final = "e07d52b1c94f4a6b8d13f0a97c5e2b48d6f1a3c09b7e4d5286f0c1a3b5d79e42"
