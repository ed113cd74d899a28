"""Memory and processor time of a command and all that it started, from /proc, by program."""

import contextlib
import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

GUARDIAN = "children/guardian.py"
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What a program takes, its children included."""

    processes: int = 0
    pss_bytes: int = 0
    core: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.processes + other.processes, self.pss_bytes + other.pss_bytes, self.core + other.core)

    @property
    def memory(self) -> str:
        return f"{self.pss_bytes / MB:.1f} MB"

    @property
    def share_of_a_core(self) -> str:
        return f"{self.core:.2%}"

    @property
    def described(self) -> str:
        return f"{self.processes} processes, {self.memory}, {self.share_of_a_core} of a core"


@dataclass(frozen=True, slots=True)
class Process:
    """A line of the process table."""

    pid: int
    parent: int
    started: int
    """In ticks since the machine's start: a pid alone may be another process's by now."""
    ticks: int
    """Its own, and those of children that it has collected."""
    command: tuple[str, ...]


def usage_by_program(root: int, seconds: float) -> dict[str, Usage]:
    """Watch a command for so long. What ended meanwhile counts as its parent's."""
    before = _tree(root)
    began = time.monotonic()
    time.sleep(seconds)
    after = _tree(root)
    took_s = time.monotonic() - began
    known = {(one.pid, one.started): one.ticks for one in before.values()}
    # A parent collects the ticks that a child had before we looked: they are not of this minute.
    gone = Counter[int]()
    for one in before.values():
        if one.pid not in after or after[one.pid].started != one.started:
            gone[one.parent] += one.ticks
    totals: dict[str, Usage] = defaultdict(Usage)
    for one in after.values():
        ticks = one.ticks - known.get((one.pid, one.started), 0) - gone[one.pid]
        totals[_program(one, after, root)] += Usage(1, _pss(one.pid), ticks / TICKS_A_SECOND / took_s)
    return dict(totals)


def _tree(root: int) -> dict[int, Process]:
    everybody = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            one = _process(int(folder.name))
            everybody[one.pid] = one
    ours = {root}
    while more := {one.pid for one in everybody.values() if one.parent in ours and one.pid not in ours}:
        ours |= more
    return {pid: everybody[pid] for pid in ours if pid in everybody}


def _process(pid: int) -> Process:
    # After the name, which may hold spaces: state, parent, …
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return Process(pid, int(fields[1]), int(fields[19]), sum(map(int, fields[11:15])), tuple(command))


def _program(one: Process, everybody: dict[int, Process], root: int) -> str:
    """The program that a process belongs to: the topmost below us that is no guardian."""
    if one.pid == root:
        return "the command itself"
    if _is_guardian(one):
        return "guardians"
    while one.parent != root and one.parent in everybody and not _is_guardian(everybody[one.parent]):
        one = everybody[one.parent]
    return _short_name(one.command)


def _is_guardian(one: Process) -> bool:
    return any(argument.endswith(GUARDIAN) for argument in one.command[:4])


def _short_name(command: tuple[str, ...]) -> str:
    if "-m" in command:
        place = command.index("-m")
        words = [word for word in command[place + 1 :] if not word.startswith(("/", "-"))]
        return " ".join(words)[:60]
    return Path(command[0].partition(" ")[0]).name


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
