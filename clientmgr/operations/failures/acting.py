"""Replays and drops failed messages, in small transactions, each with its row in the audit log.

A dead letter goes to the subscription in which it failed, a message of an error topic to where it came from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.audit.log import AuditEntry, AuditLogger, chain_of
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.broker import dead_letter_actions
from clientmgr.broker.dead_letters import Selection
from clientmgr.broker.dead_letters import State as LetterState
from clientmgr.broker.erased import is_erased
from clientmgr.broker.error_topics import ERROR_ATTRIBUTES, ERROR_TOPICS, WrongTargetError
from clientmgr.operations.failures.finding import (
    DEAD_LETTERS,
    QUERIES,
    FailedMessage,
    Filter,
    State,
    as_seen,
    count,
    over_matching,
    targets_of,
)

MESSAGES_A_TRANSACTION: Final = 500
OnProgress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of the selected messages of one place and topic."""

    place: str
    topic: str
    subscription: str
    replayed: int
    skipped: int
    """Dealt with before, by an earlier run or by somebody else at the same time."""
    problem: str = ""
    """Why nothing could be replayed; empty when all went well."""


def replay(
    connection: Connection[Any],
    wanted: Filter,
    audit: AuditLogger,
    *,
    settings: Settings,
    actor: str,
    target: str | None = None,
    again: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> list[Replayed]:
    """Deliver the selected messages again, as they were before they failed. The connection is in autocommit mode.

    `target`: where messages go whose error topic several topics share. `again`: also dead letters replayed before.
    A run that ends half-way can be repeated: what is marked is skipped.
    """
    bounded = _bounded(connection, wanted)
    letters = dead_letter_actions.replay(
        connection,
        _letters(bounded),
        audit,
        settings=settings,
        actor=actor,
        again=again,
        on_progress=on_progress,
        also=lambda topic, ids: connection.execute(
            QUERIES["note_letters"], {"ids": ids, "replayed_by": actor, "errors_topic": errors_topic_of(topic)}
        ),
    )
    results = [
        Replayed(DEAD_LETTERS, one.topic, one.subscription, one.replayed, one.skipped, one.problem) for one in letters
    ]
    for place, topic_id in _error_places(connection, bounded):
        possible = targets_of(connection, place)
        where = target if target in possible else possible[0] if len(possible) == 1 else None
        if where is None:
            problem = f"say which topic they came from: {', '.join(possible) or 'there is no topic of a device mapper'}"
            results.append(Replayed(place, target or "", "", 0, 0, problem))
            continue
        replayed = skipped = 0
        for offsets in _chunks(connection, bounded, place):
            done = publish_errors(
                connection, place, topic_id, offsets, audit, target=where, settings=settings, actor=actor
            )
            replayed += done
            skipped += len(offsets) - done
            on_progress(len(offsets))
        results.append(Replayed(place, where, "", replayed, skipped))
    return results


def drop(
    connection: Connection[Any],
    wanted: Filter,
    audit: AuditLogger,
    *,
    actor: str,
    on_progress: OnProgress = lambda _: None,
) -> int:
    """Delete the selected dead letters for good, and set messages of error topics aside. Returns how many."""
    bounded = _bounded(connection, wanted)
    dropped = dead_letter_actions.drop(connection, _letters(bounded), audit, actor=actor, on_progress=on_progress)
    for place, topic_id in _error_places(connection, bounded):
        for offsets in _chunks(connection, bounded, place):
            with connection.transaction():
                done = _claim(connection, topic_id, offsets, "dropped", actor)
                if done:
                    audit.append(connection, [_entry("error-messages.drop", place, done, actor, {})])
            dropped += len(done)
            on_progress(len(offsets))
    return dropped


def publish_errors(
    connection: Connection[Any],
    place: str,
    topic_id: int,
    offsets: Sequence[int],
    audit: AuditLogger,
    *,
    target: str,
    settings: Settings,
    actor: str,
    edited: tuple[bytes, str, Sequence[str]] | None = None,
    details: Mapping[str, Any] | None = None,
) -> int:
    """Publish messages of an error topic again. Marks, audit and messages are one transaction. Returns how many.

    `edited`: of a single message, its new contents, its tenant and which fields were changed.
    """
    if target not in targets_of(connection, place):
        raise WrongTargetError(f"messages of {place} did not come from {target!r}")
    data, tenant, changed = edited or (None, None, ())
    with connection.transaction():
        claimed = _claim(connection, topic_id, offsets, "replayed", actor)
        if claimed:
            audit.append(
                connection,
                [_entry("error-messages.replay", place, claimed, actor, {"target": target, **(details or {})})],
            )
        again = [offset for offset, _, attributes, begin in claimed if not is_erased(attributes, begin)]
        if again:
            connection.execute(
                QUERIES["publish_errors_again"],
                {
                    "target": target,
                    "topic_id": topic_id,
                    "offsets": again,
                    "without": sorted(ERROR_ATTRIBUTES),
                    "data": data,
                    "new_tenant": tenant,
                    "changed": list(changed),
                    "errors_topic": errors_topic_of(target),
                    "replayed_by": actor,
                    # From here on everyone else who publishes to the topic waits for us.
                    "cut_off_ms": settings.broker_publish_timeout_ms or None,
                },
            )
    return len(claimed)


def errors_topic_of(topic: str) -> str | None:
    """Where messages of that topic go that its daemon gives up on."""
    for errors, origin in ERROR_TOPICS.items():
        if origin == topic or (not origin and topic.startswith("sending-") and "-devicemapper-" in topic):
            return errors
    return None


def revealed(message: FailedMessage, *, actor: str, command: str) -> AuditEntry:
    """The audit entry for looking at a failed message's secrets. Write it before showing anything."""
    details: dict[str, Any] = {"command": command, "message": message.failure.ref, "place": message.failure.place}
    return AuditEntry(chain_of({message.failure.tenant}), actor, "dead-letter.reveal", "revealed", details=details)


def _bounded(connection: Connection[Any], wanted: Filter) -> Filter:
    if wanted.state in (State.WAITING, State.DROPPED):
        raise InvalidInputError("state", "open, replayed or any: nothing can be done about others", str(wanted.state))
    return as_seen(wanted, count(connection, wanted))


def _letters(wanted: Filter) -> Selection:
    """The filter as the dead letters know it."""
    return Selection(
        **wanted.narrowing(),
        ids=None if wanted.refs is None else [one.number for one in wanted.refs if one.kind == "d"],
        state={State.OPEN: LetterState.OPEN, State.REPLAYED: LetterState.REPLAYED}.get(wanted.state, LetterState.ANY),
    )


def _error_places(connection: Connection[Any], wanted: Filter) -> list[tuple[str, int]]:
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(over_matching("error_places"), replace(wanted, state=State.OPEN).parameters()).fetchall()


def _chunks(connection: Connection[Any], wanted: Filter, place: str) -> list[list[int]]:
    """The open messages of one error topic, in the log's order. They are chosen before the first of them changes."""
    position: dict[str, Any] = {"place": place, "after": 0, "most": None}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(over_matching("next_errors"), replace(wanted, state=State.OPEN).parameters() | position)
        numbers = [number for (number,) in cursor.fetchall()]
    return [numbers[at : at + MESSAGES_A_TRANSACTION] for at in range(0, len(numbers), MESSAGES_A_TRANSACTION)]


_Claimed = tuple[int, str, Mapping[str, str], bytes]


def _claim(
    connection: Connection[Any], topic_id: int, offsets: Sequence[int], action: str, actor: str
) -> list[_Claimed]:
    wanted = {"topic_id": topic_id, "offsets": list(offsets), "action": action, "handled_by": actor}
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(QUERIES["claim_errors"], wanted).fetchall()


def _entry(action: str, place: str, claimed: Sequence[_Claimed], actor: str, details: Mapping[str, Any]) -> AuditEntry:
    offsets = [offset for offset, *_ in claimed]
    return AuditEntry(
        chain_of({tenant for _, tenant, *_ in claimed}),
        actor,
        action,
        "done",
        rows_affected=len(claimed),
        details={"topic": place, "first_offset": min(offsets), "last_offset": max(offsets), **details},
    )
