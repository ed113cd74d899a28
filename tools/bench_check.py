"""`make bench-check`: what became slower since the last release. Both trees run their own benchmarks, in turns."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from bench.__main__ import benchmarks

HERE = Path(__file__).resolve().parents[1]
SLOWER = 1.10
"""Above this ratio a benchmark counts as slower, if it was slower in every round: one short run alone may well be."""
LONGEST_S = 1800.0

What: TypeAlias = tuple[str, str]
"""A benchmark, and the title of one of its tables."""
app = typer.Typer(add_completion=False)


@dataclass
class Turns:
    """The seconds that our own variant took, turn by turn."""

    before: list[float] = field(default_factory=list)
    now: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Now ÷ before: the median over the rounds, each compared within itself."""
        return statistics.median(self._ratios)

    @property
    def is_slower(self) -> bool:
        return self.ratio > SLOWER and min(self._ratios) > 1

    @property
    def _ratios(self) -> list[float]:
        return [now / before for before, now in zip(self.before, self.now, strict=True)]


@app.command()
def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Benchmarks; all if none.")] = None,
    base: Annotated[str, typer.Option(help="The revision to compare with. Empty: the newest tag.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How often each tree has its turn.")] = 5,
) -> None:
    """Compare this tree's benchmarks with those of an older one, in short, and say what became slower by more than 10%.

    Exit code 1: something did. 2: there is nothing to compare with. What only one of the two trees has is named.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    revision = base or newest_tag()
    if not revision:
        console.print("no tag to compare with: say which revision, as in `make bench-check BASE=HEAD~20`")
        raise typer.Exit(2)
    with older_tree(revision) as before, tempfile.TemporaryDirectory() as folder:
        wanted = names or list(benchmarks())
        turns: dict[What, Turns] = {}
        failed: list[str] = []
        for number, name in enumerate(wanted, 1):
            console.print(f"[dim]{number} of {len(wanted)}: {name}[/]")
            compared, problem = in_turns(name, before, rounds, Path(folder))
            turns |= compared
            if problem:
                failed.append(f"{name}: {problem}")
        show(console, turns, revision, failed)
    if any(one.is_slower for one in turns.values()):
        raise typer.Exit(1)


def in_turns(name: str, before: Path, rounds: int, folder: Path) -> tuple[dict[What, Turns], str]:
    """Run one benchmark in both trees, the other one first each time. Returns what both have, and what went wrong."""
    turns: dict[What, Turns] = defaultdict(Turns)
    for number in range(rounds):
        measured: dict[Path, Mapping[str, float]] = {}
        for tree in (before, HERE) if number % 2 == 0 else (HERE, before):
            try:
                measured[tree] = run(tree, name, folder / "result.json")
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                return {}, f"{'before' if tree == before else 'now'} it does not run ({last_line(error)})"
        for title in measured[before].keys() & measured[HERE].keys():
            turns[name, title].before.append(measured[before][title])
            turns[name, title].now.append(measured[HERE][title])
    whole = {what: one for what, one in turns.items() if len(one.now) == rounds}
    return whole, "" if whole else "it times nothing that both trees have"


def run(tree: Path, name: str, result: Path) -> dict[str, float]:
    """Seconds of our own variant, by table."""
    # Without the peers: what they take is not our doing.
    environment = {**os.environ, "PYTHONPATH": str(tree), "BENCH_VENV": str(tree / "no-peers")}
    command = [sys.executable, "-m", "bench", name, "--quick", "--rounds", "1", "--json", str(result)]
    subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, timeout=LONGEST_S)
    return ours(json.loads(result.read_text())["benchmarks"][name])


def ours(tables: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The first line of each table is ours. A listing has rows instead: it is no race."""
    return {
        table["title"]: statistics.median(sample["wall_s"] for sample in table["lines"][0]["samples"])
        for table in tables
        if table.get("lines")
    }


def show(console: Console, turns: Mapping[What, Turns], revision: str, failed: Sequence[str]) -> None:
    table = Table(title=f"Our time now ÷ at {revision}", title_justify="left")
    for heading in ("benchmark", "what", "before", "now", "ratio", ""):
        table.add_column(heading, justify="right" if heading in {"before", "now", "ratio"} else "left")
    for (name, title), one in sorted(turns.items(), key=lambda found: -found[1].ratio):
        middle = [f"{statistics.median(times):.3g} s" for times in (one.before, one.now)]
        table.add_row(name, title, *middle, f"{one.ratio:.2f}", "slower" if one.is_slower else "")
    console.print(table)
    # Not as its caption: that would be as narrow as the table.
    for line in ("Short runs: read them as a hint where to look.", *failed):
        console.print(line, markup=False, highlight=False)


@contextmanager
def older_tree(revision: str) -> Iterator[Path]:
    """A checkout of the revision, beside this one, removed again at the end."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git("worktree", "add", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def newest_tag() -> str:
    described = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=HERE, check=False, capture_output=True, text=True
    )
    return described.stdout.strip()


def git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=HERE, check=False, capture_output=True, text=True)
    if done.returncode:
        raise typer.BadParameter(done.stderr.strip(), param_hint="--base")


def last_line(error: subprocess.CalledProcessError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done within {LONGEST_S:.0f} s"
    lines = (error.stderr or error.stdout or b"").decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {error.returncode}"


if __name__ == "__main__":
    app(prog_name="python -m tools.bench_check")
