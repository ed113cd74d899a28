"""Schemas, of which there are none here: a client that lists them hears so, all else about them is UNIMPLEMENTED."""

from clientmgr.broker.gateway.names import project_of
from clientmgr.broker.gateway.protos import ListSchemasResponse, Proto
from clientmgr.broker.gateway.rpc import Call


async def list_schemas(request: Proto, _call: Call) -> Proto:
    project_of(request.parent)
    return ListSchemasResponse()
