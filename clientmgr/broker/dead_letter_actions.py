"""Replays and drops dead letters, in small transactions, each with its row in the audit log."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.audit.log import AuditEntry, AuditLogger, chain_of
from clientmgr.base.settings import Settings
from clientmgr.broker.dead_letters import QUERIES, Selection, as_counted, counts, over_matching

LETTERS_A_TRANSACTION = 500

OnProgress = Callable[[int], None]
"""Called after each transaction with the number of letters that it dealt with."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of the selected letters of one topic and subscription."""

    topic: str
    subscription: str
    replayed: int
    skipped: int
    """Replayed before, by an earlier run or by somebody else at the same time."""
    problem: str = ""
    """Why nothing could be replayed; empty when all went well."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The letters of one topic and subscription."""

    topic: str
    subscription: str
    topic_id: int
    selection: Selection


def replay(
    connection: Connection[Any],
    selection: Selection,
    audit: AuditLogger,
    *,
    settings: Settings,
    actor: str,
    again: bool = False,
    on_progress: OnProgress = lambda _: None,
    also: Callable[[str, list[int]], object] = lambda _topic, _ids: None,
    letters_a_transaction: int = LETTERS_A_TRANSACTION,
) -> list[Replay]:
    """Deliver the selected letters again, unchanged, each only to the subscription in which it failed.

    They go to the transport that BROKER names. Delivering a letter and marking it are one transaction, so a run that
    ends half-way can be repeated: marked letters are skipped unless `again` is set. `also` is called in each of these
    transactions, with the topic and the letters that were delivered. The connection is in autocommit mode.
    """
    results = []
    for part in _parts(connection, selection):
        if settings.broker == "postgres" and not _group_exists(connection, part):
            problem = f"subscription {part.subscription} of topic {part.topic} is gone: nobody would read it"
            results.append(Replay(part.topic, part.subscription, 0, 0, problem))
            continue
        replayed = skipped = 0
        for ids in _chunks(connection, part, letters_a_transaction):
            count = _replay_chunk(connection, part, ids, audit, settings=settings, actor=actor, again=again, also=also)
            replayed += count
            skipped += len(ids) - count
            on_progress(len(ids))
        results.append(Replay(part.topic, part.subscription, replayed, skipped))
    return results


def _replay_chunk(
    connection: Connection[Any],
    part: _Part,
    ids: Sequence[int],
    audit: AuditLogger,
    *,
    settings: Settings,
    actor: str,
    again: bool,
    also: Callable[[str, list[int]], object],
) -> int:
    with connection.transaction():
        locked = _rows(connection, "lock", ids=ids, again=again)
        if locked:
            due = [row[0] for row in locked]
            audit.append(connection, [_entry("dead-letters.replay", actor, part, [row[1] for row in locked], due)])
            connection.execute(QUERIES["mark_replayed"], {"ids": due})
            if settings.broker == "pubsub":
                connection.execute(QUERIES["wait_again"], {"ids": due})
            else:
                # Last: from here on everyone else who publishes to the topic waits for us.
                cut_off_ms = settings.broker_publish_timeout_ms or None
                connection.execute(QUERIES["append_again"], {"ids": due, "topic": part.topic, "cut_off_ms": cut_off_ms})
            also(part.topic, due)
    return len(locked)


def drop(
    connection: Connection[Any],
    selection: Selection,
    audit: AuditLogger,
    *,
    actor: str,
    on_progress: OnProgress = lambda _: None,
    letters_a_transaction: int = LETTERS_A_TRANSACTION,
) -> int:
    """Delete the selected letters for good. Returns how many. The connection is in autocommit mode."""
    dropped = 0
    for part in _parts(connection, selection):
        for ids in _chunks(connection, part, letters_a_transaction):
            with connection.transaction():
                tenants = [row[0] for row in _rows(connection, "drop", ids=ids)]
                if tenants:
                    audit.append(connection, [_entry("dead-letters.drop", actor, part, tenants, ids)])
            dropped += len(tenants)
            on_progress(len(ids))
    return dropped


def _parts(connection: Connection[Any], selection: Selection) -> list[_Part]:
    """The selection by topic and subscription. Two replays that append to several topics at once could deadlock."""
    counted = counts(connection, selection)
    bounded = as_counted(selection, counted)
    return [
        _Part(topic, subscription, topic_id, replace(bounded, topic=topic, subscription=subscription))
        for topic, subscription, topic_id in sorted(
            {(count.topic, count.subscription, count.topic_id) for count in counted}
        )
    ]


def _chunks(connection: Connection[Any], part: _Part, most: int) -> Iterator[list[int]]:
    """The ids of one part, in the log's order, about `most` at a time. A transaction is never split."""
    pending: list[tuple[int, int, UUID]] = []
    query = over_matching("next_page")
    position = {"topic_id": part.topic_id, "after_offset": 0, "most": most + 1}
    more = True
    while more:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(query, part.selection.parameters() | position, prepare=False)
            page = cursor.fetchall()
        pending += page
        more = len(page) > most
        if more:
            position["after_offset"] = page[-1][1]
        while end := _end_of_chunk(pending, most):
            yield [row[0] for row in pending[:end]]
            del pending[:end]
    if pending:
        yield [row[0] for row in pending]


def _end_of_chunk(rows: Sequence[tuple[int, int, UUID]], at_least: int) -> int:
    """Where a transaction ends, after `at_least` letters or more; 0 if no end is in sight yet."""
    for index in range(at_least, len(rows)):
        if rows[index][2] != rows[index - 1][2]:
            return index
    return 0


def _group_exists(connection: Connection[Any], part: _Part) -> bool:
    return bool(_rows(connection, "group_exists", topic_id=part.topic_id, subscription=part.subscription)[0][0])


def _entry(action: str, actor: str, part: _Part, tenants: Sequence[str], ids: Sequence[int]) -> AuditEntry:
    """One row per transaction: in the customer's chain if all letters are one customer's, else in the platform's."""
    return AuditEntry(
        chain_of(set(tenants)),
        actor,
        action,
        "done",
        rows_affected=len(tenants),
        details={
            "topic": part.topic,
            "subscription": part.subscription,
            "first_id": min(ids),
            "last_id": max(ids),
        },
    )


def _rows(connection: Connection[Any], name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(QUERIES[name], parameters).fetchall()
