"""A door: what the guard must know of the application behind it. The dashboard is one, Dagster's UI another."""

from abc import ABC, abstractmethod

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from clientmgr_dashboard.access.authentication import Visitor


class Door(ABC):
    """The rules of one application."""

    name: str
    """As in "This is not the address of …"."""
    hosts: frozenset[str]
    """What a request's Host may be where nobody signs in."""
    origin: str
    """Where browsers see it, as configured; empty: where it listens."""

    @abstractmethod
    def is_open(self, path: str) -> bool:
        """Whether anybody may see this without a session."""

    @abstractmethod
    def takes_password(self, connection: HTTPConnection) -> bool:
        """Whether a script may send name and password with this request."""

    @abstractmethod
    def ask_to_sign_in(self, request: Request) -> Response:
        """The answer to somebody who has no session."""

    @abstractmethod
    def refuse(self, request: Request, status: int, detail: str) -> Response:
        """The answer to a request that is refused."""

    def refusal_of_read(self, _request: Request, _visitor: Visitor | None) -> Response | None:
        """Why a GET or HEAD is refused, if it is."""
        return None

    @abstractmethod
    def refusal_of_change(self, request: Request, visitor: Visitor | None, body: bytes) -> Response | None:
        """Why any other request is refused, if it is. That it comes from our own page or a script is known by now."""

    @abstractmethod
    def add_headers(self, headers: MutableHeaders, visitor: Visitor | None) -> None:
        """What every answer tells browsers."""
