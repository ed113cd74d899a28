"""What each route of Dagster's web application needs. A test compares this with Dagster's own table of routes."""

import enum
from typing import Final


class Needs(enum.Enum):
    NOTHING = "anybody may see it"
    SESSION = "a session; it only reads"
    OPERATION = "a session; what else, the GraphQL operation says"
    OPERATOR = "an operator's session"


GRAPHQL: Final = "/graphql"
HEALTH: Final = "/server_info"

ROUTES: Final = {
    HEALTH: Needs.NOTHING,  # probes ask it
    "/dagit_info": Needs.SESSION,
    GRAPHQL: Needs.OPERATION,
    "/logs/{path:path}": Needs.SESSION,
    "/notebook": Needs.SESSION,
    "/dagit/notebook": Needs.SESSION,
    "/download_debug/{run_id:str}": Needs.SESSION,
    "/report_asset_materialization/{asset_key:path}": Needs.OPERATOR,
    "/report_asset_check/{asset_key:path}": Needs.OPERATOR,
    "/report_asset_observation/{asset_key:path}": Needs.OPERATOR,
    "/{path:path}": Needs.SESSION,  # the UI's one page
    "/": Needs.SESSION,
}
"""By the route's path. Static files are not named: they need a session, as all that is not named does."""

_REPORTS: Final = tuple(path.partition("{")[0] for path, needs in ROUTES.items() if needs is Needs.OPERATOR)


def is_open(path: str) -> bool:
    return ROUTES.get(path) is Needs.NOTHING


def needs_of_change(path: str) -> Needs | None:
    """What it takes to change something there. None: nobody may, because nothing that we know of is changed there."""
    if path == GRAPHQL:
        return Needs.OPERATION
    return Needs.OPERATOR if path.startswith(_REPORTS) else None
