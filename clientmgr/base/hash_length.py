"""How long a keyed hash is. By itself, so that whoever only recognises one knows nothing of the key."""

from typing import Final

HASH_BYTES: Final = 16
"""Enough that no two of a tenant are ever equal, and every index entry is half as long."""
