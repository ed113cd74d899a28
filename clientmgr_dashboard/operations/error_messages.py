"""Messages of the error topics: listed with payload and reason, published again, or set aside."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from clientmgr.base.masking import masked, masked_text
from clientmgr.broker.error_topics import (
    ErrorMessage,
    drop_errors,
    error_counts,
    error_messages,
    replay_errors,
    replay_targets,
)
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.context import Context
from clientmgr_dashboard.operations.interface import (
    Limit,
    Newest,
    Page,
    PageNumber,
    PerPage,
    RowNumber,
    SearchText,
    api_get,
    api_post,
    newest,
    paged,
    row_of,
)

LOOK_AT = 100_000
ErrorTopicName = Literal["client-manager.writer-errors", "client-manager.contact-deletion-errors", "sending-mg-errors"]
Offsets = Annotated[list[RowNumber], Meta(min_length=1, max_length=500)]


class ErrorTopicsRequest(Struct, frozen=True, rename="camel"):
    page: PageNumber = 1
    per_page: PerPage = 50


class ErrorMessagesRequest(Struct, frozen=True, rename="camel"):
    topic: ErrorTopicName = "client-manager.writer-errors"
    state: Literal["open", "handled", "any"] = "open"
    limit: Limit = 50
    before: RowNumber | None = None


class ReplayErrorsRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    topic: ErrorTopicName
    offsets: Offsets
    target: SearchText
    """Where to: a topic that the messages may have come from."""


class DropErrorsRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    topic: ErrorTopicName
    offsets: Offsets


class ErrorTopicRow(Struct, frozen=True, rename="camel"):
    topic: str
    open: int
    last_day: int
    kept: int
    is_at_least: bool
    """There are so many that they were not all counted."""
    targets: list[str]


class ErrorMessageRow(Struct, frozen=True, rename="camel"):
    """A message that a daemon gave up on."""

    offset: int
    tenant: str
    key: str
    error_class: str
    error: str
    attributes: dict[str, str]
    payload: str
    """As text, indented where it is JSON; device secrets in it are masked."""
    published_at: datetime
    action: str | None
    """`replayed` or `dropped`; null: nobody has dealt with it."""
    handled_by: str | None
    handled_at: datetime | None


class ErrorsHandled(Struct, frozen=True, rename="camel"):
    handled: int
    skipped: int
    """Dealt with before, or gone."""


async def list_error_topics(context: Context, _visitor: Visitor, request: ErrorTopicsRequest) -> Page[ErrorTopicRow]:
    async with context.reading() as connection:
        rows = [
            row_of(ErrorTopicRow, count, targets=await replay_targets(connection, count.topic))
            for count in await error_counts(connection, look_at=LOOK_AT)
        ]
    return paged(rows, request.page, request.per_page)


async def list_error_messages(
    context: Context, _visitor: Visitor, request: ErrorMessagesRequest
) -> Newest[ErrorMessageRow]:
    is_open = {"open": True, "handled": False, "any": None}[request.state]
    async with context.reading() as connection:
        found = await error_messages(
            connection, request.topic, limit=request.limit + 1, before=request.before, is_open=is_open
        )
    return newest([_row(one) for one in found], request.limit, lambda row: row.offset)


async def error_targets(context: Context, topic: str) -> list[str]:
    async with context.reading() as connection:
        return await replay_targets(connection, topic)


async def replay_error_messages(context: Context, visitor: Visitor, request: ReplayErrorsRequest) -> ErrorsHandled:
    """Publish messages again, as they were before they failed."""
    offsets = sorted(set(request.offsets))
    async with context.writing() as connection:
        handled = await replay_errors(
            connection,
            request.topic,
            offsets,
            request.target,
            context.audit,
            settings=context.settings,
            actor=visitor.actor,
        )
    return ErrorsHandled(handled, len(offsets) - handled)


async def drop_error_messages(context: Context, visitor: Visitor, request: DropErrorsRequest) -> ErrorsHandled:
    """Set messages aside."""
    offsets = sorted(set(request.offsets))
    async with context.writing() as connection:
        handled = await drop_errors(connection, request.topic, offsets, context.audit, actor=visitor.actor)
    return ErrorsHandled(handled, len(offsets) - handled)


def _row(one: ErrorMessage) -> ErrorMessageRow:
    attributes: dict[str, str] = masked(dict(one.attributes))
    return row_of(
        ErrorMessageRow,
        one,
        offset=one.c_offset,
        error_class=attributes.get("errorClass", ""),
        error=attributes.get("error", ""),
        attributes=attributes,
        payload=masked_text(one.data),
    )


OPERATIONS = (
    api_get("/error-topics", "The topics of what daemons gave up on.", list_error_topics),
    api_get("/error-messages", "Messages of an error topic.", list_error_messages),
    api_post("/error-messages/replay", "Publish messages of an error topic again.", replay_error_messages),
    api_post("/error-messages/drop", "Set messages of an error topic aside.", drop_error_messages),
)
