"""The key of the benchmarks: a good one, as weaker ones are refused. It is no secret."""

from typing import Final

BENCH_KEY: Final = "c41d8e0b7f2a4963b5d80e1f6a97c3245e8b0d7f1c6a39e2d4b58f07a1c9e63b"
