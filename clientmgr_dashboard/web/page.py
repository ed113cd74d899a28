"""What a page declares: its routes, its entry in the navigation, and the API operations that belong to it."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.routing import Route

from clientmgr_dashboard.operations.interface import Operation
from clientmgr_dashboard.web.handling import Site
from clientmgr_dashboard.web.rendering import Navigation


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """`PAGE` of a module in `pages/`. The application, the navigation and the API are made from these."""

    order: int
    """Where it stands among the others: in the navigation and in the API's document."""
    routes: tuple[Callable[[Site], Route], ...]
    navigation: Navigation | None = None
    operations: tuple[Operation, ...] = ()
