"""Hashes with a key are HMAC-SHA256, as the migrations in SQL and every row that is written already have it."""

import hmac
import pickle

import pytest

from clientmgr.base.keyed_sha256 import KeyedSha256


@pytest.mark.parametrize("length", [1, 32, 64, 65, 200])
def test_it_is_hmac_for_keys_shorter_and_longer_than_a_block(length: int) -> None:
    key = bytes(range(length % 256 or 1)) * (length // 256 + 1)
    digest = KeyedSha256(key[:length])
    for data in (b"", b"contact\0001\00042", b"x" * 5000):
        assert digest(data) == hmac.digest(key[:length], data, "sha256")


def test_it_can_be_sent_to_another_process() -> None:
    digest = KeyedSha256(b"a secret")
    copy = pickle.loads(pickle.dumps(digest))  # noqa: S301  # we wrote it
    assert copy(b"data") == digest(b"data")
