"""The writer and contact deletion end to end, beside one commit per event and the limit: the same rows, prebuilt.

Messages are published first; timed is from the start of consuming to the last commit, start-up of Python left out.

| variant | what it does |
|---|---|
| ours, the daemon | `clientmgr run writer --burst` as it is, 1 or 2 processes, no Redis (a query a batch instead) |
| one commit per event | the writer's own code on events that are in memory, a transaction each |
| limit | what the writer wrote in a rehearsal, sent again as prebuilt bulk statements: a round trip and a commit a |
| | batch, the daemon's batches and number of connections; no transport, decoding, reading, merging, locks |

Checked: for every tenant the number of devices and a digest of devices, tombstones, claims and links are the same after
each turn (times of writing left out), and after contact deletion the number of audit rows and what they count.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.harness.measure import Sample, ensure_same_work, take_turns
from bench.harness.options import Options
from bench.harness.report import Comparison, Line, speed_ratio
from bench.harness.servers import BenchPostgres, bench_postgres
from bench.writer.databases import Source, source_of_deletions, source_of_events
from bench.writer.rehearsal import rehearse
from bench.writer.tasks import Task
from bench.writer.variants import DAEMON, LIMIT, ONE_COMMIT_PER_EVENT, Variant, rehearsal_file
from clientmgr.base.settings import Settings
from streaming import contact_deletion, writer

SKEW = 1.0
"""The nth tenant has 1/n of the first one's events."""
AIM_ONE_TENANT, AIM_MANY_TENANTS = 0.6, 0.4
AIM_DELETIONS_PER_S, AIM_DELETIONS = 20_000, 0.5
MEMORY_EVENTS, MEMORY_TENANTS = 1_000_000, 50
AIM_MEMORY_GROWTH = 1.1
"""Resident memory after all events, at most so many times that after a tenth of them."""


def run(options: Options) -> Iterator[Comparison]:
    events = 4_000 if options.quick else 50_000
    numbers = (1, 20) if options.quick else (1, 50, 1000)
    rounds = max(options.rounds // 3, 1)  # a round takes minutes
    with (
        bench_postgres(options) as server,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as folder,
    ):
        notes = Path(folder)
        yield from writing(server, notes, numbers, events, rounds)
        yield from _one_commit_per_event(server, notes, numbers[:2], events // 20)
        yield from deleting(server, notes, numbers[:2], events, rounds)
        if not options.quick:
            yield _memory(server)


def writing(
    server: BenchPostgres, folder: Path, numbers: Iterable[int], events: int, rounds: int
) -> Iterator[Comparison]:
    streams = [(tenants, skew) for tenants in numbers for skew in ((0.0,) if tenants == 1 else (0.0, SKEW))]
    for tenants, skew in streams:
        source = source_of_events(server, "events", tenants=tenants, events=events, skew=skew)
        rehearse(source, writer.DAEMON, rehearsal_file(folder, source))
        kind = "" if tenants == 1 else ", skewed" if skew else ", uniform"
        for writers in (1, 2):
            title = f"{events} events, {_several(tenants, 'tenant')}{kind}, {_several(writers, 'writer')}"
            lines = _take_turns(title, source, [DAEMON, LIMIT], _task(folder, source, workers=writers), rounds)
            aim = AIM_ONE_TENANT if tenants == 1 else AIM_MANY_TENANTS
            yield Comparison(title, lines, events, "events", (_share_of_limit(lines, aim),))
        server.drop_database(source.name)


def _one_commit_per_event(
    server: BenchPostgres, folder: Path, numbers: Iterable[int], events: int
) -> Iterator[Comparison]:
    for tenants in numbers:
        source = source_of_events(server, "events", tenants=tenants, events=events, skew=0.0)
        rehearse(source, writer.DAEMON, rehearsal_file(folder, source))
        title = f"One commit per event: {events} events, {_several(tenants, 'tenant')}, 1 writer"
        variants = [DAEMON, ONE_COMMIT_PER_EVENT, LIMIT]
        lines = _take_turns(title, source, variants, _task(folder, source), 1)
        yield Comparison(title, lines, events, "events")
        server.drop_database(source.name)


def deleting(
    server: BenchPostgres, folder: Path, numbers: Iterable[int], contacts: int, rounds: int
) -> Iterator[Comparison]:
    for tenants in numbers:
        source = source_of_deletions(server, "deletions", tenants=tenants, contacts=contacts)
        rehearse(source, contact_deletion.DAEMON, rehearsal_file(folder, source))
        title = f"Deleting {contacts} contacts with two devices each, {_several(tenants, 'tenant')}"
        task = _task(folder, source, daemon=contact_deletion.DAEMON.name, connections=1)
        lines = _take_turns(title, source, [DAEMON, LIMIT], task, rounds)
        speed, share = contacts / lines[0].wall_s, speed_ratio(lines[0], lines[1])
        met = "met" if speed >= AIM_DELETIONS_PER_S or share >= AIM_DELETIONS else "missed"
        note = f"aim: {AIM_DELETIONS_PER_S:,} contacts/s or {AIM_DELETIONS:.0%} of the limit; {share:.0%} of it: {met}"
        yield Comparison(title, lines, contacts, "contacts", (note,))
        server.drop_database(source.name)


def _memory(server: BenchPostgres) -> Comparison:
    source = source_of_events(server, "events", tenants=MEMORY_TENANTS, events=MEMORY_EVENTS, skew=0.0, at_once=1000)
    title = f"{MEMORY_EVENTS:,} events, {MEMORY_TENANTS} tenants, 1 writer: its memory"
    _announce(title)
    turn = DAEMON.run(source, Task(url="", kind="", messages=MEMORY_EVENTS))
    memory = turn.reports[0].memory_kb
    met = "met" if memory["100%"] <= memory["10%"] * AIM_MEMORY_GROWTH else "missed"
    marks = ", ".join(f"{memory_kb / 1024:.0f} MB after {share}" for share, memory_kb in memory.items())
    server.drop_database(source.name)
    line = Line(DAEMON.name, (turn.sample,))
    return Comparison(title, (line,), MEMORY_EVENTS, "events", (f"aim: flat; resident: {marks}: {met}",))


def _task(
    folder: Path, source: Source, *, workers: int = 1, daemon: str = writer.DAEMON.name, connections: int | None = None
) -> Task:
    return Task(
        url="",
        kind="",
        daemon=daemon,
        rehearsal=str(rehearsal_file(folder, source)),
        workers=workers,
        connections=connections or Settings.model_fields["writer_concurrency"].default,
    )


def _take_turns(title: str, source: Source, variants: list[Variant], task: Task, rounds: int) -> tuple[Line, ...]:
    samples: dict[str, list[Sample]] = {variant.name: [] for variant in variants}
    rows: dict[str, object] = {}
    for number, variant in enumerate(take_turns(variants, rounds), start=1):
        _announce(f"{title}: turn {number} of {len(variants) * rounds}: {variant.name}")
        turn = variant.run(source, task)
        samples[variant.name].append(turn.sample)
        rows[variant.name] = turn.rows
        ensure_same_work(title, rows)
    return tuple(Line(name, tuple(taken)) for name, taken in samples.items())


def _share_of_limit(lines: tuple[Line, ...], aim: float) -> str:
    share = speed_ratio(lines[0], lines[-1])
    return f"aim: {aim:.0%} of the limit; {share:.0%}: {'met' if share >= aim else 'missed'}"


def _several(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number > 1)}"


def _announce(what: str) -> None:
    print(f"writer: {what}", file=sys.stderr)
