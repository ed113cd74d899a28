"""Mends one failed message and replays it: what somebody wrote, checked by its topic's contract.

Secrets are shown masked, and a masked value that was left as it was shown becomes the original again: nobody has to see
a token in order to mend what stands beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
from psycopg import Connection
from psycopg.rows import tuple_row

from clientmgr.audit.log import AuditEntry, AuditLogger, chain_of
from clientmgr.base.errors import InvalidInputError, PermanentError
from clientmgr.base.masking import masked, masked_text
from clientmgr.base.settings import Settings
from clientmgr.broker.error_topics import ERROR_TOPICS
from clientmgr.operations.failures import contracts
from clientmgr.operations.failures.acting import errors_topic_of, publish_errors
from clientmgr.operations.failures.finding import QUERIES, FailedMessage, Ref, show, targets

MASK: Final = "…"
_DECODER: Final = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_ABSENT: Final = object()


class DealtWithError(PermanentError):
    """Somebody has dealt with the message already, or it is tried again by itself."""


@dataclass(frozen=True, slots=True)
class Edited:
    """What was edited, and where it went."""

    ref: str
    target: str
    changed: Sequence[str]
    """`clientId`, `payload.platform`: the fields, never what is in them."""


@dataclass(frozen=True, slots=True)
class _Mended:
    data: bytes
    tenant: str
    changed: Sequence[str]


def shown_for_editing(message: FailedMessage) -> str:
    """The text that somebody edits: indented, with the secrets masked."""
    return masked_text(message.data)


def edit_and_replay(
    connection: Connection[Any],
    ref: Ref,
    text: str,
    audit: AuditLogger,
    *,
    settings: Settings,
    actor: str,
    target: str | None = None,
) -> Edited:
    """Publish the edited message where the failed one came from, and mark that one. The original stays as it was.

    The audit log keeps who did it and the names of the fields. It keeps no contents: it is never erased.
    """
    message = show(connection, ref)
    if message.failure.state != "open":
        raise DealtWithError(f"message {ref} is {message.failure.state}: only open ones can be edited")
    possible = targets(connection, message.failure)
    where = target if target in possible else possible[0] if len(possible) == 1 else None
    if where is None:
        raise InvalidInputError("target", f"one of {', '.join(possible) or '(no topic)'}", target or "none")
    new = mended(message, text, where, max_bytes=settings.broker_max_message_bytes)
    details = {"message": str(ref), "edited": ", ".join(new.changed)[:1000]}
    if message.failure.place in ERROR_TOPICS:
        done = publish_errors(
            connection,
            message.failure.place,
            ref.topic_id,
            [ref.number],
            audit,
            target=where,
            settings=settings,
            actor=actor,
            edited=(new.data, new.tenant, new.changed),
            details=details,
        )
    else:
        done = _replay_letter(connection, message, new, audit, settings=settings, actor=actor, details=details)
    if not done:
        raise DealtWithError(f"somebody has dealt with message {ref} meanwhile")
    return Edited(str(ref), where, new.changed)


def mended(message: FailedMessage, text: str, topic: str, *, max_bytes: int) -> _Mended:
    """The edited message as it would be published, or an error that names the field. Nothing is changed by asking."""
    try:
        edited = _DECODER.decode(text.encode())
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidInputError("data", f"JSON ({error})", f"{len(text)} characters") from None
    try:
        original = _DECODER.decode(message.data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        original = _ABSENT
    whole = edited if original is _ABSENT else _unmasked(edited, masked(original), original)
    for path, value in _leaves(whole):
        if isinstance(value, str) and _looks_masked(value) and value not in _texts(original):
            raise InvalidInputError(path, "the whole value: this one is masked, and not where it was", value)
    changed = ["(all of it: it was no JSON)"] if original is _ABSENT else sorted(_changes(original, whole))
    if not changed:
        raise InvalidInputError("data", "something else than what failed; to try it as it is, replay it", "no change")
    data = _ENCODER.encode(whole)
    contracts.check(topic, data, max_bytes=max_bytes)
    return _Mended(data, contracts.customer_of(data) or message.failure.tenant, changed)


def _replay_letter(
    connection: Connection[Any],
    message: FailedMessage,
    new: _Mended,
    audit: AuditLogger,
    *,
    settings: Settings,
    actor: str,
    details: dict[str, str],
) -> bool:
    if settings.broker != "postgres":
        raise PermanentError("with BROKER=pubsub dead letters can be replayed as they are, not edited")
    failure, number = message.failure, Ref.parse(message.failure.ref).number
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        locked = cursor.execute(
            "SELECT FROM clientmgr.dead_letter_queue WHERE id = %s AND replayed_at IS NULL FOR UPDATE", [number]
        ).fetchall()
        if not locked:
            return False
        about: dict[str, Any] = {
            "topic": failure.topic,
            "subscription": failure.subscription,
            "first_id": number,
        }
        chain = chain_of({failure.tenant, new.tenant})
        entry = AuditEntry(chain, actor, "dead-letters.replay", "done", rows_affected=1, details={**about, **details})
        audit.append(connection, [entry])
        cursor.execute("UPDATE clientmgr.dead_letter_queue SET replayed_at = clock_timestamp() WHERE id = %s",
                       [number])  # fmt: skip
        cursor.execute(
            QUERIES["publish_edited_letter"],
            {
                "topic": failure.topic,
                "number": number,
                "data": new.data,
                "new_tenant": new.tenant,
                "changed": list(new.changed),
                "errors_topic": errors_topic_of(failure.topic),
                "replayed_by": actor,
                "cut_off_ms": settings.broker_publish_timeout_ms or None,
            },
        )
    return True


def _unmasked(edited: Any, shown: Any, original: Any) -> Any:
    """`edited`, with the original wherever somebody left what was shown."""
    if edited == shown and type(edited) is type(shown):
        return original
    if isinstance(edited, dict) and isinstance(shown, dict) and isinstance(original, dict):
        names = dict(zip(shown, original, strict=True))  # a name may be masked too
        return {
            names.get(name, name): _unmasked(value, shown[name], original[names[name]]) if name in shown else value
            for name, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(shown, list) and isinstance(original, list):
        kept = min(len(edited), len(shown))
        return [_unmasked(*triple) for triple in zip(edited, shown[:kept], original[:kept], strict=False)] + edited[
            kept:
        ]
    return edited


def _looks_masked(value: str) -> bool:
    return value == MASK or (len(value) == 11 and value[6] == MASK)


def _leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from _leaves(value, f"{path}[{place}]")
    else:
        yield path or "data", document


def _texts(document: Any) -> set[str]:
    return {value for _, value in _leaves(document) if isinstance(value, str)}


def _changes(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """The names of what differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            within = f"{path}.{name}" if path else str(name)
            yield from _changes(before.get(name, _ABSENT), after.get(name, _ABSENT), within)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _changes(one, other, f"{path}[{place}]")
    elif type(before) is not type(after) or before != after:
        yield (path or "(all of it)")[:200]
