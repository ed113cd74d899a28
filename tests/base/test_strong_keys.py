"""Weak keys and files that others may read: nothing of ours starts with them."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from clientmgr.base.data_folder import attach, lock_folder
from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import ensure_private, kept_secret
from clientmgr.base.settings import load_settings
from clientmgr.base.strong_keys import weakness

KEYS = ("AUDIT_HASH_KEY", "LIVE_TOKEN_KEY", "DASHBOARD_SESSION_KEY", "METRICS_TOKEN")
WEAK = (
    "change-me",
    "k",
    "hunter2",
    "0123456789",
    "changeme" * 8,
    "change-me-please-change-me-please",
    "CHANGE_ME_to_a_secret_key_of_some_length",
    "your-secret-key-example-placeholder",
    "a" * 64,
    "ab" * 32,
    "abcabcabcabcabcabcabcabcabcabc",
    "0123456789abcdef0123456789abcdef",
    "abcdefghijklmnopqrstuvwxyz",
    "00000000000000000000000000000001",
    "test-key" * 4,
    " " * 40,
)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("weak", WEAK)
def test_a_weak_key_is_refused_by_its_name_with_a_way_to_make_a_good_one(
    name: str, weak: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, weak)
    with pytest.raises(SettingsError, match=rf"^{name}: .*openssl rand -hex 32") as refused:
        load_settings()
    assert weak == "k" or weak not in str(refused.value), "a key is never shown, not even a bad one"


@pytest.mark.parametrize("make", [secrets.token_urlsafe, secrets.token_hex])
def test_the_usual_generators_never_make_a_key_that_is_refused(make: Callable[[int], str]) -> None:
    assert [key for key in (make(24) for _ in range(2000)) if weakness(key)] == []


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("DATABASE_URL", "postgresql://clientmgr:change-me@db.internal:5432/clientmgr"),
        ("DATABASE_WRITER_URL", "postgresql://clientmgr:change%2Dme@db.internal:5432/clientmgr"),
        ("REDIS_URL", "redis://:change-me@redis.internal:6379/0"),
    ],
)
def test_the_password_of_our_example_is_refused(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, url)
    with pytest.raises(SettingsError, match=rf"^{name}: expected a password of its own"):
        load_settings()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602, 0o610])
def test_a_file_of_ours_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text("key")
    file.chmod(mode)
    with pytest.raises(SettingsError, match=rf"^SOME_FILE: others may read or change .*mode {mode:04o}"):
        ensure_private(file, "SOME_FILE")
    file.chmod(0o600)
    ensure_private(file, "SOME_FILE")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_somebody_hands_to_our_group_is_taken_and_no_wider_one(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("key")
    os.chown(file, 65534, os.getegid())
    file.chmod(0o640)
    ensure_private(file, "SOME_FILE")
    for mode in (0o644, 0o660):
        file.chmod(mode)
        with pytest.raises(SettingsError, match="SOME_FILE"):
            ensure_private(file, "SOME_FILE")
    os.chown(file, 65534, 65534)
    file.chmod(0o640)
    with pytest.raises(SettingsError, match="SOME_FILE"):
        ensure_private(file, "SOME_FILE")


def test_a_kept_secret_that_others_may_read_or_that_was_emptied_is_refused(tmp_path: Path) -> None:
    made = kept_secret(tmp_path, "audit_hash_key")
    assert kept_secret(tmp_path, "audit_hash_key") == made
    (tmp_path / "audit_hash_key").chmod(0o644)
    with pytest.raises(SettingsError, match="DATA_DIR: audit_hash_key: others may read"):
        kept_secret(tmp_path, "audit_hash_key")
    (tmp_path / "audit_hash_key").chmod(0o600)
    (tmp_path / "audit_hash_key").write_text("")
    with pytest.raises(SettingsError, match="DATA_DIR: expected a key that nobody can guess"):
        kept_secret(tmp_path, "audit_hash_key")


USES: dict[str, Callable[[Path], object]] = {
    "audit_hash_key": lambda folder: kept_secret(folder, "audit_hash_key"),
    "lock": lock_folder,
    "running.json": lambda folder: attach(load_settings(data_dir=folder)),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("how", ["a link", "a file of theirs"])
def test_what_somebody_planted_in_a_folder_of_ours_while_it_was_open_is_refused(
    tmp_path: Path, name: str, how: str
) -> None:
    folder, theirs, planted = tmp_path / "data", tmp_path / "theirs", tmp_path / "data" / name
    folder.mkdir()
    theirs.write_text(secrets.token_hex(32))
    theirs.chmod(0o600)
    before = theirs.read_text()
    if how == "a link":
        planted.symlink_to(theirs)
    elif os.geteuid() != 0:
        pytest.skip("only root can give files away")
    else:
        planted.write_text(before)
        planted.chmod(0o600)
        os.chown(planted, 65533, 65533)
    with pytest.raises(SettingsError, match=rf"DATA_DIR: .*{name} is a link or belongs to somebody else"):
        USES[name](folder)
    assert theirs.read_text() == before
