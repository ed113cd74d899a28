"""Tags on Dagster's runs that say who is behind them. The audit log's actors come from them; no request sets them."""

from typing import Final

LAUNCHED_BY: Final = "clientmgr/launched_by"
"""Who launched the run in Dagster's UI or by its API. The webserver sets it, whatever the request says."""

REQUESTED_BY: Final = "clientmgr/requested_by"
"""Who asked by a message. Our sensors set it."""

ACTOR_TAGS: Final = frozenset({LAUNCHED_BY, REQUESTED_BY})
