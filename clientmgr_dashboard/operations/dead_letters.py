"""Dead letters: listed with why, shown with their contents, replayed or dropped, one or many."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from psycopg import Connection

from clientmgr.base.masking import masked, masked_text, masked_words, plain_text
from clientmgr.broker import dead_letter_actions as actions
from clientmgr.broker.dead_letters import DeadLetter, Selection, State, as_counted, counts, letters, summaries
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    CustomerNumber,
    ForbiddenError,
    Limit,
    Newest,
    NotFoundError,
    RowNumber,
    SearchText,
    api_get,
    api_post,
    newest,
    row_of,
)

MOST_CHOSEN = 500
Ids = Annotated[list[RowNumber], Meta(max_length=MOST_CHOSEN)]


class LettersRequest(Struct, frozen=True, rename="camel"):
    topic: SearchText | None = None
    subscription: SearchText | None = None
    customer_id: CustomerNumber | None = None
    error_class: SearchText | None = None
    contains: SearchText | None = None
    """Text in the error or in the message. For operators: whoever may ask often enough finds out what is masked."""
    state: Literal["open", "replayed", "any"] = "open"
    limit: Limit = 50
    before: RowNumber | None = None


class LetterRequest(Struct, frozen=True, rename="camel"):
    id: RowNumber


class ChosenLetters(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which letters to act on: some by their ids, or all that a filter selects."""

    ids: Ids | None = None
    topic: SearchText | None = None
    subscription: SearchText | None = None
    customer_id: CustomerNumber | None = None
    error_class: SearchText | None = None
    contains: SearchText | None = None
    newest_id: RowNumber | None = None
    """Nothing that failed after this letter: what somebody has seen and agreed to."""
    everything: bool = False
    """Really all. Where nothing narrows the choice and this is not said, nothing is chosen."""


class LetterRow(Struct, frozen=True, rename="camel"):
    """A dead letter in a list."""

    id: int
    topic: str
    subscription: str
    tenant: str
    key: str
    error_class: str
    error: str
    attempts: int
    published_at: datetime
    failed_at: datetime
    replayed_at: datetime | None
    bytes: int


class LetterDetail(Struct, frozen=True, rename="camel"):
    """A dead letter with its contents."""

    id: int
    topic: str
    subscription: str
    offset: int
    partition: int
    tenant: str
    key: str
    transaction_id: str
    attributes: dict[str, str]
    error_class: str
    error: str
    attempts: int
    published_at: datetime
    failed_at: datetime
    replayed_at: datetime | None
    payload: str
    """As text, indented where it is JSON."""
    is_revealed: bool
    """False: device secrets in the payload are masked."""


class LetterCountRow(Struct, frozen=True, rename="camel"):
    topic: str
    subscription: str
    error_class: str
    letters: int
    first_failed_at: datetime
    last_failed_at: datetime


class LettersPreview(Struct, frozen=True, rename="camel"):
    """What an action would be about."""

    letters: int
    newest_id: int
    counts: list[LetterCountRow]


class ReplayResult(Struct, frozen=True, rename="camel"):
    topic: str
    subscription: str
    replayed: int
    skipped: int
    problem: str


class LettersReplayed(Struct, frozen=True, rename="camel"):
    replayed: int
    results: list[ReplayResult]


class LettersDropped(Struct, frozen=True, rename="camel"):
    dropped: int


async def list_letters(context: Context, visitor: Visitor, request: LettersRequest) -> Newest[LetterRow]:
    selection = Selection(
        topic=request.topic or None,
        subscription=request.subscription or None,
        tenant=None if request.customer_id is None else str(request.customer_id),
        error_class=request.error_class or None,
        contains=_searched(request.contains, visitor),
        state=State(request.state),
        newest_id=None if request.before is None else request.before - 1,
    )
    found = await context.read(summaries, selection, limit=request.limit + 1)
    rows = [row_of(LetterRow, one, error=masked_words(one.exception)) for one in found]
    return newest(rows, request.limit, lambda row: row.id)


async def show_letter(context: Context, _visitor: Visitor, request: LetterRequest) -> LetterDetail:
    return _detail(await _letter(context, request.id), reveal=False)


async def reveal_letter(context: Context, visitor: Visitor, request: LetterRequest) -> LetterDetail:
    """With the secrets in its payload. The audit log records who sees them before they are shown."""
    letter = await _letter(context, request.id)
    await context.record(actions.revealed(letter, actor=visitor.actor, command="dashboard"))
    return _detail(letter, reveal=True)


async def preview_letters(context: Context, visitor: Visitor, request: ChosenLetters) -> LettersPreview:
    counted = await context.read(counts, _selection(request, visitor))
    return LettersPreview(
        sum(count.letters for count in counted),
        max((count.newest_id for count in counted), default=0),
        [row_of(LetterCountRow, count) for count in counted],
    )


async def replay_letters(context: Context, visitor: Visitor, request: ChosenLetters) -> LettersReplayed:
    """Deliver letters again, unchanged, each to the subscription in which it failed."""

    def run(connection: Connection[Any]) -> list[actions.Replay]:
        selection = _as_seen(connection, request, visitor)
        return actions.replay(connection, selection, context.audit, settings=context.settings, actor=visitor.actor)

    results = await context.write(run)
    return LettersReplayed(sum(one.replayed for one in results), [row_of(ReplayResult, one) for one in results])


async def drop_letters(context: Context, visitor: Visitor, request: ChosenLetters) -> LettersDropped:
    """Delete letters for good."""

    def run(connection: Connection[Any]) -> int:
        return actions.drop(connection, _as_seen(connection, request, visitor), context.audit, actor=visitor.actor)

    return LettersDropped(await context.write(run))


def _as_seen(connection: Connection[Any], request: ChosenLetters, visitor: Visitor) -> Selection:
    """Without what failed meanwhile."""
    selection = _selection(request, visitor)
    return selection if selection.newest_id else as_counted(selection, counts(connection, selection))


def _selection(request: ChosenLetters, visitor: Visitor) -> Selection:
    narrowed = request.topic, request.subscription, request.customer_id, request.error_class, request.contains
    # Choosing nothing does not mean everything.
    nothing = not (request.ids or request.everything or any(narrowed))
    return Selection(
        ids=[] if nothing else request.ids or None,
        topic=request.topic or None,
        subscription=request.subscription or None,
        tenant=None if request.customer_id is None else str(request.customer_id),
        error_class=request.error_class or None,
        contains=_searched(request.contains, visitor),
        newest_id=request.newest_id,
        state=State.OPEN,
    )


def _searched(text: str | None, visitor: Visitor) -> str | None:
    """A search answers "is this in it?". Asked often enough, that reveals a token that the page masks."""
    if text and not visitor.role.includes(Role.OPERATOR):
        raise ForbiddenError(f"contains: to search in texts needs the role operator; yours is {visitor.role}.")
    return text or None


async def _letter(context: Context, letter_id: int) -> DeadLetter:
    found = await context.read(letters, [letter_id])
    if not found:
        raise NotFoundError(f"there is no dead letter {letter_id}")
    return found[0]


def _detail(letter: DeadLetter, *, reveal: bool) -> LetterDetail:
    return row_of(
        LetterDetail,
        letter,
        offset=letter.c_offset,
        partition=letter.partition_id,
        transaction_id=str(letter.transaction_id),
        attributes=dict(letter.attributes) if reveal else masked(dict(letter.attributes)),
        error=letter.exception if reveal else masked_words(letter.exception),
        payload=plain_text(letter.data) if reveal else masked_text(letter.data),
        is_revealed=reveal,
    )


OPERATIONS = (
    api_get("/dead-letters", "Messages that could not be handled.", list_letters),
    api_get("/dead-letters/{id}", "A dead letter with its contents.", show_letter),
    api_post("/dead-letters/reveal", "A dead letter with the secrets in it. Recorded in the audit log.", reveal_letter),
    api_post("/dead-letters/preview", "How many letters an action would be about.", preview_letters, needs=Role.VIEWER),
    api_post("/dead-letters/replay", "Deliver dead letters again.", replay_letters),
    api_post("/dead-letters/drop", "Delete dead letters for good.", drop_letters),
)
