"""What the intake refuses, and how it says so: problem details (RFC 9457) that name the field."""

import http
from collections.abc import Sequence

import msgspec
from msgspec import Struct

PROBLEM_JSON = "application/problem+json"


class FieldProblem(Struct, frozen=True, omit_defaults=True):
    """A field that is wrong, and why."""

    field: str
    detail: str
    index: int | None = None
    """Of the event in its batch, from 0."""


class Problem(Struct, frozen=True, omit_defaults=True):
    """RFC 9457."""

    title: str
    status: int
    detail: str = ""
    type: str = "about:blank"
    errors: Sequence[FieldProblem] = ()


class RefusedError(Exception):
    """The answer is a problem. `headers` go with it."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = headers

    @property
    def body(self) -> bytes:
        title = http.HTTPStatus(self.status).phrase
        return msgspec.json.encode(Problem(title, self.status, self.detail, errors=self.errors))


def wrong_field(text: str, *, index: int | None = None) -> FieldProblem:
    """From a decoder's "field: what is wrong"."""
    field, _, detail = text.partition(": ")
    return FieldProblem(field, detail, index) if detail else FieldProblem("", text, index)


def invalid(errors: Sequence[FieldProblem]) -> RefusedError:
    first = errors[0]
    where = "" if first.index is None else f"event {first.index}: "
    return RefusedError(400, f"{where}{first.field}: {first.detail}", errors=errors)
