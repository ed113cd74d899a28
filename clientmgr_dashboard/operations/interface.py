"""What an operation is, and the types that their requests and answers share.

A request is one Struct: for GET from the path and the query, for POST from the body. Its fields are the API's
parameters, checked by their types, and the OpenAPI document is made from them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from clientmgr.base.errors import PermanentError
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.access.visitors import Visitor
from clientmgr_dashboard.context import Desk

Item = TypeVar("Item")

CustomerNumber = Annotated[int, Meta(ge=1, le=999_999_999_999_999_999, description="The customer's id.")]
ContactNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
RowNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# PostgreSQL has no NUL in its texts.
Text = Annotated[str, Meta(max_length=2048, pattern=r"^[^\x00]*$")]
SearchText = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000, description="Which page, from 1.")]
PerPage = Annotated[int, Meta(ge=1, le=500, description="How many on a page.")]
Limit = Annotated[int, Meta(ge=1, le=500, description="At most so many.")]


class NotFoundError(PermanentError):
    """There is no such thing."""


class Nothing(Struct, frozen=True):
    """A request without parameters."""


class Page(Struct, Generic[Item], frozen=True, rename="camel"):
    """A part of a table."""

    items: list[Item]
    page: int
    per_page: int
    total: int
    is_at_least: bool = False
    """There are more: so many were looked for."""

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.per_page))


class Newest(Struct, Generic[Item], frozen=True, rename="camel"):
    """A part of something that grows, the newest first."""

    items: list[Item]
    next: int | None
    """Give this as `before` to go on; null: this was the end."""


def paged(items: list[Item], page: int, per_page: int) -> Page[Item]:
    """A page of what is in memory anyway."""
    return Page(items[(page - 1) * per_page : page * per_page], page, per_page, len(items))


def newest(items: list[Item], limit: int, key: Callable[[Item], int]) -> Newest[Item]:
    """`items`: one more than the limit, if there are so many."""
    return Newest(items[:limit], key(items[limit - 1]) if len(items) > limit else None)


Run = Callable[[Desk, Visitor, Any], Awaitable[Struct]]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be asked for (GET) or done (POST)."""

    method: Literal["GET", "POST"]
    path: str
    """Below /api/v1, with {names} of the request's fields in it."""
    summary: str
    request: type[Struct]
    answer: Any
    run: Run
    needs: Role = Role.VIEWER

    @property
    def name(self) -> str:
        return self.run.__name__
