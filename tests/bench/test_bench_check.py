"""`make bench-check`: what it calls slower, and what it says of benchmarks that one tree lacks. Nothing is measured."""

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bench.__main__ import benchmarks
from tools import bench_check

BEFORE, NOW = {"one": 1.0, "gone": 1.0}, {"one": 1.0, "added": 1.0}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> "Check":
    found = Check()
    monkeypatch.setattr(bench_check, "run", found.run)
    return found


class Check:
    def __init__(self) -> None:
        self.turns: list[str] = []
        self.now = [1.0, 1.0, 1.0]
        self.broken_before: set[str] = set()

    def run(self, tree: Path, name: str, result: Path) -> dict[str, float]:
        is_now = tree == bench_check.HERE
        self.turns.append("now" if is_now else "before")
        if not is_now and name in self.broken_before:
            raise subprocess.CalledProcessError(2, "bench", stderr=b"Traceback\nNoSuchBenchmark")
        return {**NOW, "one": self.now[self.turns.count("now") - 1]} if is_now else BEFORE

    def __call__(self, *names: str) -> Result:
        return CliRunner().invoke(bench_check.app, ["--base", "HEAD", "--rounds", "3", *names])


def test_trees_take_turns_and_the_median_of_the_rounds_decides(check: Check) -> None:
    check.now = [9.0, 1.05, 1.0]
    done = check("writer")
    assert (done.exit_code, check.turns) == (0, ["before", "now", "now", "before", "before", "now"])
    assert "slower" not in done.stdout.replace("bench", "")
    assert "added" not in done.stdout

    check.turns, check.now = [], [9.0, 1.2, 0.99]
    assert check("writer").exit_code == 0, "in one round it was no slower: that is noise"

    check.turns, check.now = [], [9.0, 1.2, 1.01]
    done = check("writer")
    assert done.exit_code == 1
    assert "1.20" in done.stdout
    assert "slower" in done.stdout


def test_a_benchmark_that_one_tree_does_not_have_is_named_and_stops_nothing(check: Check) -> None:
    check.broken_before = {"new"}
    done = check("new", "writer")
    assert done.exit_code == 0, done.stdout
    assert "new: before it does not run (NoSuchBenchmark)" in done.stdout
    assert "1.00" in done.stdout


def test_without_names_all_benchmarks_run_and_only_those(check: Check) -> None:
    check.now = [1.0] * 3 * len(benchmarks())
    done = check()
    assert done.exit_code == 0, done.stdout
    assert len(check.turns) == 6 * len(benchmarks())


def test_what_is_listed_and_not_timed_is_passed_over() -> None:
    listed = {"title": "what it takes", "rows": []}
    timed = {"title": "publish", "lines": [{"samples": [{"wall_s": 1.0}, {"wall_s": 3.0}]}]}
    assert bench_check.ours([listed, timed]) == {"publish": 2.0}


def test_a_revision_that_is_not_there_is_refused() -> None:
    done = CliRunner().invoke(bench_check.app, ["--base", "no-such-revision"])
    assert done.exit_code == 2
    assert "no-such-revision" in done.output
