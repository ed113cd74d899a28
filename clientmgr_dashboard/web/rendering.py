"""How pages are rendered: templates that escape whatever is put into them, and how numbers and times are written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from clientmgr.base import wording
from clientmgr.base.wording import plural
from clientmgr_dashboard import charts
from clientmgr_dashboard.access.authentication import Authenticator, Visitor
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.problems import Problem
from clientmgr_dashboard.web.refusals import Refusal

UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True)
class Navigation:
    """An entry of the navigation."""

    title: str
    path: str
    needs: Role = Role.VIEWER
    """Nobody else sees the entry. The page's routes check the role themselves."""


class Renderer:
    """Fills in templates."""

    def __init__(self, authenticator: Authenticator, navigation: Sequence[Navigation]) -> None:
        self._authenticator = authenticator
        # Whatever comes from a store is text, never markup: in every template, whatever the file is called.
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("clientmgr_dashboard", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            number=number,
            share=share,
            moment=moment,
            ago=ago,
            span=span,
            size=size,
            signed=signed,
            value=value,
            rate=rate,
            label=label,
            pretty=pretty,
            plural=plural,
        )
        self._templates.globals.update(sparkline=charts.sparkline, query=query, navigation=navigation)

    def page(self, request: Request, template: str, *, status: int = 200, **content: Any) -> Response:
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        session = None if visitor is None else visitor.session
        refused: Refusal | None = getattr(request.state, "refusal", None)
        body = self._templates.get_template(template).render(
            path=request.url.path,
            visitor=visitor,
            is_operator=visitor is not None and visitor.role is Role.OPERATOR,
            sign_in_needed=self._authenticator.sign_in_needed,
            csrf_token="" if session is None else self._authenticator.sessions.csrf_token(session),
            refused=refused,
            **content,
        )
        return HTMLResponse(body if refused is None else refused.written_into(body), status)

    def problem(self, request: Request, found: Problem) -> Response:
        request.state.refusal = None
        return self.page(request, "problem.html", status=found.status, problem=found)


def number(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:,.0f}"


def signed(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:+,.0f}" if amount else "0"


def rate(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:,.1f}"


def share(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.1%}"


def size(amount: float | None) -> str:
    return UNKNOWN if amount is None else wording.size(amount)


def moment(at: datetime | None) -> Markup | str:
    if at is None:
        return UNKNOWN
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def ago(at: datetime | None) -> Markup | str:
    """How long ago; the exact time is shown when the pointer rests on it."""
    if at is None:
        return "never"
    utc = at.astimezone(UTC)
    age = span((datetime.now(UTC) - utc).total_seconds())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC", f"{age} ago"
    )


def span(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else wording.span(seconds)


def value(anything: Any) -> str:
    """A value of a device or an audit row, whatever its type."""
    if anything is None:
        return UNKNOWN
    if isinstance(anything, bool):
        return "yes" if anything else "no"
    return json.dumps(anything, ensure_ascii=False) if isinstance(anything, dict | list) else str(anything)


def pretty(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def label(name: str) -> str:
    return name.replace("_", " ")


def query(parameters: dict[str, Any], **changed: Any) -> str:
    """A link's query with some parameters changed; those that are None or empty are left out."""
    wanted = {**parameters, **changed}
    return "?" + urlencode([(key, item) for key, item in wanted.items() if item not in (None, "")])
