"""The tests' PostgreSQL server lies in memory where there is room, and nothing of a killed session stays there."""

import os
from pathlib import Path

import pytest

from tests import memory_folder as subject
from tests.memory_folder import memory_folder


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(subject, "MEMORY", folder)
    monkeypatch.setattr(subject, "ROOM", 0)
    return folder


def test_what_a_killed_session_left_is_removed_and_what_another_uses_is_not(memory: Path, tmp_path: Path) -> None:
    left = memory / f"clientmgr-tests-{os.geteuid()}-left"
    left.mkdir()
    (left / "in-use").touch()
    foreign = memory / "clientmgr-tests-of-somebody-else"
    foreign.mkdir()
    with memory_folder(tmp_path) as first, memory_folder(tmp_path) as second:
        assert {*memory.iterdir()} == {first, second, foreign}
    assert [*memory.iterdir()] == [foreign]


def test_without_room_in_memory_it_is_the_other_folder(
    memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "ROOM", 1 << 60)
    with memory_folder(tmp_path) as folder:
        assert folder == tmp_path
    assert not [*memory.iterdir()]
