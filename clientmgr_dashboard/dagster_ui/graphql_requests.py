"""What a GraphQL request would do: read, change or follow. It is parsed as Dagster's server does, and not executed."""

import functools
import json
from typing import Any, Final

from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse

QUERY: Final = frozenset({OperationType.QUERY})
SUBSCRIPTION: Final = frozenset({OperationType.SUBSCRIPTION})
LONGEST_DOCUMENT: Final = 256 * 1024
"""The UI's own documents are a tenth of this. A longer one keeps the parser busy for seconds."""


class UnclearRequestError(Exception):
    """Nobody can tell what the request would do."""


def operations_in(document: object) -> frozenset[OperationType]:
    """The kinds of all operations in a document: whichever of them is chosen, it is one of these."""
    if not isinstance(document, str):
        raise UnclearRequestError("`query`: expected a GraphQL document")
    if len(document) > LONGEST_DOCUMENT:
        raise UnclearRequestError(f"`query`: more than {LONGEST_DOCUMENT:,} characters")
    return _parsed(document)


@functools.lru_cache(maxsize=128)  # the UI sends the same documents again and again
def _parsed(document: str) -> frozenset[OperationType]:
    try:
        definitions = parse(document, no_location=True).definitions
    except (GraphQLError, RecursionError) as error:
        raise UnclearRequestError(f"`query`: not GraphQL ({type(error).__name__})") from None
    found = frozenset(each.operation for each in definitions if isinstance(each, OperationDefinitionNode))
    if not found:
        raise UnclearRequestError("`query`: no operation")
    return found


def operations_of_body(body: bytes) -> frozenset[OperationType]:
    """Of the JSON body of a POST. A batch is refused: Dagster's server takes none."""
    return operations_in(_object(body).get("query"))


def operations_of_frame(text: object) -> frozenset[OperationType]:
    """Of a WebSocket's frame (protocol `graphql-ws`). None: it starts no operation."""
    if not isinstance(text, str):
        raise UnclearRequestError("a frame that is no text")
    message = _object(text)
    if message.get("type") != "start":
        return frozenset()
    payload = message.get("payload")
    return operations_in(payload.get("query") if isinstance(payload, dict) else None)


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)  # as Starlette does for Dagster: two readers must not understand two things
    except (ValueError, RecursionError):
        raise UnclearRequestError("expected JSON") from None
    if not isinstance(found, dict):
        raise UnclearRequestError("expected one JSON object")
    return found
