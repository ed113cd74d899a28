"""What the whole system takes while it has nothing to do: memory, processor time and statements a minute.

Each command runs for real in a folder of its own, on free ports, and is left alone until it has settled. Memory is PSS
(a page that several processes share is counted once), processor time comes from /proc, so that both are honest on a
busy machine too. Linux only.

| variant | what it is |
|---|---|
| up | `clientmgr up`, with no traffic at all |
| demo | `clientmgr demo`, with its devices, messages and positions, after its nightly jobs |
"""

from collections.abc import Iterator

from bench.at_rest.command import RunningCommand
from bench.at_rest.processes import Usage, usage_by_program
from bench.at_rest.statements import Statements, count_statements
from bench.harness.options import Options
from bench.harness.report import Listing

COMMANDS = ("up", "demo")
SETTLE_S, SETTLE_QUICK_S = 60.0, 5.0
MEASURE_S, MEASURE_QUICK_S = 60.0, 5.0


def run(options: Options) -> Iterator[Listing]:
    for name in COMMANDS:
        yield measure(options, name)


def measure(options: Options, name: str) -> Listing:
    """Run one command, and list what each of its programs takes."""
    settle_s, measure_s = (SETTLE_QUICK_S, MEASURE_QUICK_S) if options.quick else (SETTLE_S, MEASURE_S)
    with RunningCommand(name, options.folder) as command:
        command.wait_until_settled(settle_s)
        programs = usage_by_program(command.pid, measure_s)
        # By itself: the server writes each of them down meanwhile.
        statements = count_statements(command, measure_s)
        answered_after_s = command.answered_after_s
    return Listing(
        f"clientmgr {name}: what it takes",
        ("program", "processes", "PSS", "of a core"),
        tuple(_row(program, usage) for program, usage in by_memory(programs)),
        (
            f"all in: {sum(programs.values(), Usage()).described}",
            f"it was up after {answered_after_s:.0f} s",
            *_notes(statements),
        ),
    )


def by_memory(programs: dict[str, Usage]) -> list[tuple[str, Usage]]:
    return sorted(programs.items(), key=lambda one: -one[1].pss_bytes)


def _row(program: str, usage: Usage) -> tuple[str, ...]:
    return program, str(usage.processes), usage.memory, usage.share_of_a_core


def _notes(statements: Statements) -> Iterator[str]:
    yield f"statements a minute: {sum(statements.values()):.0f}"
    for (who, what), count in sorted(statements.items(), key=lambda one: -one[1])[:12]:
        yield f"  {count:.0f}  {who}: {what}"
