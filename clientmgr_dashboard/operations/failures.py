"""Messages that failed, wherever they lie: grouped, listed with why, shown, edited, replayed or dropped."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace
from psycopg import Connection

from clientmgr.base.masking import masked, masked_text, masked_words, plain_text
from clientmgr.operations.failures import acting, contracts, editing, finding
from clientmgr.operations.failures.finding import (
    CURSOR_PATTERN,
    REF_PATTERN,
    Cursor,
    FailedMessage,
    Failure,
    FailureGroup,
    Filter,
    NoSuchFailureError,
    Ref,
    State,
    as_seen,
)
from clientmgr.operations.failures.outcomes import ReplayOutcome, outcomes
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.failure_types import (
    FailureDetail,
    FailureGroups,
    FailurePage,
    FailureRow,
)
from clientmgr_dashboard.operations.interface import (
    CustomerNumber,
    ForbiddenError,
    Limit,
    Moment,
    NotFoundError,
    SearchText,
    api_get,
    api_post,
    row_of,
)

MOST_CHOSEN = 500
MOST_GROUPS = 50
RefText = Annotated[str, Meta(pattern=REF_PATTERN, description="d17: a dead letter; e5-123: of an error topic.")]
AnyState = Literal["open", "waiting", "replayed", "dropped", "any"]
MessageText = Annotated[str, Meta(max_length=16 * 1024 * 1024)]


class FailuresRequest(Struct, frozen=True, rename="camel"):
    topic: SearchText | None = None
    """Where the message came from, or the error topic in which it lies."""
    subscription: SearchText | None = None
    customer_id: CustomerNumber | None = None
    error_class: SearchText | None = None
    contains: SearchText | None = None
    """Text in the error or in the message. For operators: whoever may ask often enough finds out what is masked."""
    since: Moment | None = None
    until: Moment | None = None
    state: AnyState = "open"


class FailureListRequest(FailuresRequest, frozen=True, rename="camel"):
    limit: Limit = 50
    before: Annotated[str, Meta(pattern=CURSOR_PATTERN)] | None = None


class FailureRequest(Struct, frozen=True, rename="camel"):
    ref: RefText


class ChosenFailures(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which messages to act on: some by their ids, or all that a filter selects."""

    ids: Annotated[list[RefText], Meta(max_length=MOST_CHOSEN)] | None = None
    topic: SearchText | None = None
    subscription: SearchText | None = None
    customer_id: CustomerNumber | None = None
    error_class: SearchText | None = None
    contains: SearchText | None = None
    since: Moment | None = None
    until: Moment | None = None
    not_after: Moment | None = None
    """Nothing that failed later: what somebody has seen and agreed to."""
    everything: bool = False
    """Really all. Where nothing narrows the choice and this is not said, nothing is chosen."""
    target: SearchText | None = None
    """Of messages whose error topic several topics share: where they came from."""


class EditRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    ref: RefText
    text: MessageText
    """The whole message. What is left masked, where it was, stays as it was."""
    target: SearchText | None = None


class FailuresPreview(Struct, frozen=True, rename="camel"):
    """What an action would be about."""

    messages: int
    is_at_least: bool
    tenants: int
    not_after: datetime | None
    groups: list[FailureGroup]
    targets: list[str]
    """To choose from; empty where each message's own place is known."""


class ReplayResult(Struct, frozen=True, rename="camel"):
    place: str
    topic: str
    subscription: str
    replayed: int
    skipped: int
    problem: str


class FailuresReplayed(Struct, frozen=True, rename="camel"):
    replayed: int
    results: list[ReplayResult]


class FailuresDropped(Struct, frozen=True, rename="camel"):
    dropped: int


class FailureEdited(Struct, frozen=True, rename="camel"):
    ref: str
    target: str
    changed: list[str]
    """The names of the fields."""


async def list_failures(context: Context, visitor: Visitor, request: FailureListRequest) -> FailurePage:
    wanted = _filter(request, visitor)
    before = None if request.before is None else Cursor.parse(request.before)

    def look(connection: Connection[Any]) -> FailurePage:
        found = finding.find(connection, wanted, limit=request.limit + 1, before=before)
        more, found = len(found) > request.limit, found[: request.limit]
        last = {one.ref: one for one in outcomes(connection, [one.ref for one in found], last_only=True)}
        rows = [_row(one, last.get(one.ref)) for one in found]
        return FailurePage(rows, str(Cursor(found[-1].failed_at, found[-1].ref)) if more else None)

    return await context.read(look)


async def group_failures(context: Context, visitor: Visitor, request: FailuresRequest) -> FailureGroups:
    """How many failed, by error, tenant and topic."""
    wanted = _filter(request, visitor)

    def look(connection: Connection[Any]) -> FailureGroups:
        counted = finding.count(connection, wanted)
        rows = [_group(one) for one in finding.groups(connection, wanted, limit=MOST_GROUPS)]
        waiting = finding.count(connection, Filter(state=State.WAITING))
        return FailureGroups(counted.messages, counted.is_at_least, counted.tenants, waiting.messages, rows)

    return await context.read(look)


async def show_failure(context: Context, _visitor: Visitor, request: FailureRequest) -> FailureDetail:
    return await _detail(context, request.ref, reveal=False)


async def reveal_failure(context: Context, visitor: Visitor, request: FailureRequest) -> FailureDetail:
    """With the secrets in it. The audit log records who sees them before they are shown."""
    message = await _message(context, request.ref)
    await context.record(acting.revealed(message, actor=visitor.actor, command="dashboard"))
    return await _detail(context, request.ref, reveal=True)


async def preview_failures(context: Context, visitor: Visitor, request: ChosenFailures) -> FailuresPreview:
    wanted = _chosen(request, visitor)

    def look(connection: Connection[Any]) -> FailuresPreview:
        counted = finding.count(connection, wanted)
        found = finding.groups(connection, wanted, limit=MOST_GROUPS)
        shared = sorted({one.place for one in found if one.place == one.topic})
        targets = [target for place in shared for target in finding.targets_of(connection, place)]
        return FailuresPreview(
            counted.messages,
            counted.is_at_least,
            counted.tenants,
            counted.newest_at,
            [_group(one) for one in found],
            targets,
        )

    return await context.read(look)


async def replay_failures(context: Context, visitor: Visitor, request: ChosenFailures) -> FailuresReplayed:
    """Deliver messages again, unchanged, to where they failed."""

    def run(connection: Connection[Any]) -> list[acting.Replayed]:
        return acting.replay(
            connection,
            _as_seen(connection, request, visitor),
            context.audit,
            settings=context.settings,
            actor=visitor.actor,
            target=request.target,
        )

    results = await context.write(run)
    return FailuresReplayed(sum(one.replayed for one in results), [row_of(ReplayResult, one) for one in results])


async def edit_failure(context: Context, visitor: Visitor, request: EditRequest) -> FailureEdited:
    """Publish an edited message where the failed one came from. Its topic's contract is checked first."""

    def run(connection: Connection[Any]) -> editing.Edited:
        return editing.edit_and_replay(
            connection,
            Ref.parse(request.ref),
            request.text,
            context.audit,
            settings=context.settings,
            actor=visitor.actor,
            target=request.target,
        )

    try:
        done = await context.write(run)
    except NoSuchFailureError as error:
        raise NotFoundError(str(error)) from None
    return FailureEdited(done.ref, done.target, list(done.changed))


async def drop_failures(context: Context, visitor: Visitor, request: ChosenFailures) -> FailuresDropped:
    """Delete dead letters for good, and set messages of error topics aside."""

    def run(connection: Connection[Any]) -> int:
        return acting.drop(connection, _as_seen(connection, request, visitor), context.audit, actor=visitor.actor)

    return FailuresDropped(await context.write(run))


async def text_to_edit(context: Context, request: FailureRequest) -> str:
    """What a form begins with: the message, its secrets masked."""
    return editing.shown_for_editing(await _message(context, request.ref))


def _as_seen(connection: Connection[Any], request: ChosenFailures, visitor: Visitor) -> Filter:
    """Without what failed meanwhile."""
    wanted = _chosen(request, visitor)
    return wanted if wanted.not_after else as_seen(wanted, finding.count(connection, wanted))


def _chosen(request: ChosenFailures, visitor: Visitor) -> Filter:
    if request.ids:
        return Filter(refs=[Ref.parse(one) for one in request.ids], not_after=request.not_after)
    wanted = _filter(FailuresRequest(**{
        name: getattr(request, name) for name in FailuresRequest.__struct_fields__ if name != "state"
    }), visitor, not_after=request.not_after)  # fmt: skip
    # Choosing nothing does not mean everything.
    return wanted if wanted.is_narrow or request.everything else Filter(refs=[])


def _filter(request: FailuresRequest, visitor: Visitor, *, not_after: datetime | None = None) -> Filter:
    if request.contains and not visitor.role.includes(Role.OPERATOR):
        # A search answers "is this in it?". Asked often enough, that reveals a token that the page masks.
        raise ForbiddenError(f"contains: to search in texts needs the role operator; yours is {visitor.role}.")
    return Filter(
        topic=request.topic or None,
        subscription=request.subscription or None,
        tenant=None if request.customer_id is None else str(request.customer_id),
        error_class=request.error_class or None,
        contains=request.contains or None,
        since=request.since,
        until=request.until,
        state=State(request.state),
        not_after=not_after,
    )


async def _message(context: Context, ref: str) -> FailedMessage:
    try:
        return await context.read(finding.show, Ref.parse(ref))
    except NoSuchFailureError as error:
        raise NotFoundError(str(error)) from None


async def _detail(context: Context, ref: str, *, reveal: bool) -> FailureDetail:
    message = await _message(context, ref)

    def look(connection: Connection[Any]) -> tuple[list[ReplayOutcome], list[str]]:
        its = message.failure
        return outcomes(connection, [its.ref]), finding.targets(connection, its)

    replays, targets = await context.read(look)
    failed = message.failure if reveal else _masked(message.failure)
    return FailureDetail(
        **asdict(failed),
        attributes=dict(message.attributes) if reveal else masked(dict(message.attributes)),
        offset=message.offset,
        partition=message.partition,
        published_at=message.published_at,
        transaction_id=message.transaction_id,
        handled_by=message.handled_by,
        payload=plain_text(message.data) if reveal else masked_text(message.data),
        is_revealed=reveal,
        replays=replays if reveal else [_masked(one) for one in replays],
        targets=targets,
        **asdict(contracts.subject_of(message.data)),
    )


def _row(one: Failure, replay: ReplayOutcome | None) -> FailureRow:
    return FailureRow(**asdict(_masked(one)), replay=None if replay is None else _masked(replay))


def _group(one: FailureGroup) -> FailureGroup:
    return replace(one, example=masked_words(one.example))


Told = TypeVar("Told", Failure, ReplayOutcome)


def _masked(one: Told) -> Told:
    return replace(one, error=masked_words(one.error))


OPERATIONS = (
    api_get("/failures", "Messages that failed, the newest first.", list_failures),
    api_get("/failures/groups", "How many failed, by error, tenant and topic.", group_failures),
    api_get("/failures/{ref}", "A failed message with its contents, and what became of its replays.", show_failure),
    api_post("/failures/reveal", "A failed message with its secrets. Recorded in the audit log.", reveal_failure),
    api_post("/failures/preview", "How many messages an action would be about.", preview_failures, needs=Role.VIEWER),
    api_post("/failures/replay", "Deliver failed messages again.", replay_failures),
    api_post("/failures/edit", "Mend a failed message and deliver it.", edit_failure),
    api_post("/failures/drop", "Delete failed messages, or set them aside.", drop_failures),
)
