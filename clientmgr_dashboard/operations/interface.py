"""What an operation is, and the types that requests and answers share.

A request is one Struct: for GET from the path and the query, for POST from the body. Its fields are the API's
parameters, checked by their types. The OpenAPI document is made from them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar, get_type_hints

from msgspec import Meta, Struct

from clientmgr.base.errors import ClientManagerError, PermanentError
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.context import Context

Item = TypeVar("Item")
Row = TypeVar("Row", bound=Struct)

CustomerNumber = Annotated[int, Meta(ge=1, le=999_999_999_999_999_999, description="The customer's id.")]
ContactNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Moment = Annotated[datetime, Meta(tz=True)]
RowNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# PostgreSQL has no NUL in its texts.
Text = Annotated[str, Meta(max_length=2048, pattern=r"^[^\x00]*$")]
SearchText = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]
Reason = Annotated[str, Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Meta(ge=1, le=1_000_000, description="Which page, from 1.")]
PerPage = Annotated[int, Meta(ge=1, le=500, description="How many on a page.")]
Limit = Annotated[int, Meta(ge=1, le=500, description="At most so many.")]


class NotFoundError(PermanentError):
    """There is no such thing."""


class ForbiddenError(ClientManagerError):
    """Not with this role."""


class Nothing(Struct, frozen=True):
    """A request without parameters."""


class Changed(Struct, frozen=True, rename="camel"):
    changed: bool
    """False: it was so already."""


class Page(Struct, Generic[Item], frozen=True, rename="camel"):
    """A part of a table."""

    items: list[Item]
    page: int
    per_page: int
    total: int
    is_at_least: bool = False
    """There are more: counting stopped here."""

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.per_page))


class Newest(Struct, Generic[Item], frozen=True, rename="camel"):
    """A part of something that grows, the newest first."""

    items: list[Item]
    next: int | None
    """Give this as `before` to go on; null: this was the end."""


def paged(items: list[Item], page: int, per_page: int) -> Page[Item]:
    """A page of a list that is in memory anyway."""
    return Page(items[(page - 1) * per_page : page * per_page], page, per_page, len(items))


def newest(items: list[Item], limit: int, key: Callable[[Item], int]) -> Newest[Item]:
    """`items` holds one more than the limit where there are more: that is how the end is known."""
    return Newest(items[:limit], key(items[limit - 1]) if len(items) > limit else None)


def row_of(row: type[Row], domain: object, **computed: Any) -> Row:
    """A row with some of a domain object's fields, taken by name; `computed` are those that it does not have so."""
    taken = {name: getattr(domain, name) for name in row.__struct_fields__ if name not in computed}
    return row(**taken, **computed)


Run = Callable[[Context, Visitor, Any], Awaitable[Struct]]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be asked for (GET) or done (POST). Pages and API call the same function."""

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


def api_get(path: str, summary: str, run: Run) -> Operation:
    """An operation that changes nothing. Request and answer are the types in the function's signature."""
    return Operation("GET", path, summary, *_types(run), run)


def api_post(path: str, summary: str, run: Run, *, needs: Role = Role.OPERATOR) -> Operation:
    """An operation that changes something, or whose request must not stand in a URL."""
    return Operation("POST", path, summary, *_types(run), run, needs)


def _types(run: Run) -> tuple[type[Struct], Any]:
    *_, request, answer = get_type_hints(run, include_extras=True).values()
    return request, answer
