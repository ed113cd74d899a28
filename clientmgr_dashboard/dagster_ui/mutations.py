"""Every GraphQL mutation: by operators only, and audited before it is done and after, under the name of who asked.

It wraps the resolvers of the schema's Mutation type. Aliases, fragments and variables are resolved by then, and queries
cost nothing more.
"""

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from graphql import GraphQLError, GraphQLObjectType, GraphQLResolveInfo, default_field_resolver
from starlette.requests import HTTPConnection

from clientmgr.audit.log import PLATFORM, AuditEntry, AuditLogger, Detail
from clientmgr.base.customer_ids import parse_customer_id
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.authentication import Visitor
from clientmgr_dashboard.access.users import Role as UserRole
from clientmgr_dashboard.dagster_ui.launches import launching_as

log = get_logger(__name__)

LONGEST_DETAIL: Final = 200
MOST_LISTED: Final = 20

# Members of the arguments that say what a mutation is about. Nothing else of them is recorded: configs, tags, cursors
# and descriptions may hold anything.
_ABOUT: Final = frozenset(
    {
        "jobName", "pipelineName", "repositoryLocationName", "repositoryLocationNames", "locationName",
        "assetSelection", "assetKey", "assetKeys", "assetCheckSelection", "partitionNames", "partitionKey",
        "partitionKeys", "partitionsDefName", "partitionSetName", "allPartitions", "runId", "runIds", "parentRunId",
        "backfillId", "sensorName", "scheduleName", "strategy", "terminatePolicy", "concurrencyKey", "limit", "paused",
        "stepKey", "stepKeys", "eventType",
    }
)  # fmt: skip
_PARTITION_TAGS: Final = {
    "dagster/partition": "partition",
    "dagster/asset_partition_range_start": "partition_from",
    "dagster/asset_partition_range_end": "partition_to",
}


class ChangesRecord:
    """Writes who changes what to the audit log. A change that can't be recorded is not made."""

    def __init__(self, settings: Settings) -> None:
        self._database = Database.from_settings(settings)
        self._audit = AuditLogger.from_settings(settings)

    def append(self, actor: str, action: str, outcome: str, details: Mapping[str, Detail]) -> None:
        entry = AuditEntry(PLATFORM, actor, f"dagster.{action}", outcome, details=details)
        with self._database.connect(Role.WRITER) as connection, connection.transaction():
            self._audit.append(connection, [entry])

    def append_result(self, actor: str, action: str, outcome: str, details: Mapping[str, Detail]) -> None:
        """It has happened, and can't be undone for want of a row: the intent is recorded."""
        try:
            self.append(actor, action, outcome, details)
        except Exception as error:
            log.error("a change's result is not in the audit log", actor=actor, action=action, exc_info=error)


def visitor_of(source: object) -> Visitor | None:
    """Whose request it is. The guard has put it there."""
    visitor = source.scope.get("state", {}).get("visitor") if isinstance(source, HTTPConnection) else None
    return visitor if isinstance(visitor, Visitor) else None


def may_change(visitor: Visitor | None) -> bool:
    return visitor is not None and visitor.role.includes(UserRole.OPERATOR)


def actor_of(visitor: Visitor) -> str:
    return f"dagster:{visitor.name}"


def record_mutations(mutations: GraphQLObjectType, record: ChangesRecord) -> None:
    for name, field in mutations.fields.items():
        field.resolve = _recorded(name, field.resolve or default_field_resolver, record)


def _recorded(name: str, resolve: Callable[..., Any], record: ChangesRecord) -> Callable[..., Any]:
    async def resolve_recorded(root: Any, info: GraphQLResolveInfo, **arguments: Any) -> Any:
        visitor = visitor_of(info.context.source)
        if visitor is None or not may_change(visitor):
            raise GraphQLError(f"{name} needs the role {UserRole.OPERATOR}.")
        actor = actor_of(visitor)
        # Blocking is fine: each request has a thread and a loop of its own.
        record.append(actor, name, "intended", about(arguments))
        try:
            with launching_as(actor):
                result = resolve(root, info, **arguments)
                if inspect.isawaitable(result):
                    result = await result
        except Exception as error:
            record.append_result(actor, name, "failed", {"error": type(error).__name__})
            raise
        answer = type(result).__name__.removeprefix("Graphene")
        outcome = "failed" if answer.endswith(("Error", "NotFound", "Invalid")) else "done"
        record.append_result(actor, name, outcome, {"answer": answer, **_launched(result)})
        return result

    return resolve_recorded


def about(arguments: Mapping[str, Any]) -> dict[str, Detail]:
    """What a mutation's arguments say it is about: jobs, assets, partitions, runs, customers. No config."""
    found: dict[str, list[str]] = {}
    for name, text in _named(arguments):
        texts = found.setdefault(name, [])
        if text not in texts:
            texts.append(text)
    return {name: _listed(texts) for name, texts in found.items()}


def _named(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if name in {"assetSelection", "assetKey", "assetKeys"} and "path" in value:
            yield name, "/".join(map(str, value["path"]))
        elif value.get("key") in _PARTITION_TAGS and "value" in value:
            yield _PARTITION_TAGS[value["key"]], str(value["value"])
        for key, member in value.items():
            if key == "runConfigData":
                yield from (("customer", customer) for customer in _customers(member))
            elif key in _ABOUT or isinstance(member, Mapping | list | tuple):
                yield from _named(member, key if key in _ABOUT else "")
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _named(member, name)
    elif name and value is not None:
        yield name, str(getattr(value, "value", value))


def _customers(config: Any) -> Iterator[str]:
    """Customer ids in a run's config: nothing else of it is to be recorded."""
    if isinstance(config, str):  # a config may come as JSON
        with contextlib.suppress(ValueError, RecursionError):
            config = json.loads(config)
    if isinstance(config, Mapping):
        for key, member in config.items():
            if key == "customer_id":
                try:
                    yield str(parse_customer_id(str(member)))
                except InvalidInputError:
                    yield "invalid"
            else:
                yield from _customers(member)
    elif isinstance(config, list | tuple):
        for member in config:
            yield from _customers(member)


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - MOST_LISTED} more" if len(texts) > MOST_LISTED else ""
    return ", ".join(text[:LONGEST_DETAIL] for text in texts[:MOST_LISTED]).replace("\0", "") + more


def _launched(result: Any) -> dict[str, Detail]:
    """The run or backfill that came of it."""
    run = getattr(result, "run", None)
    found = {"run_id": getattr(run, "runId", None), "backfill_id": getattr(result, "backfill_id", None)}
    return {name: str(value) for name, value in found.items() if isinstance(value, str)}
