"""README's way out for events of a customer whom nobody activated; and a subscription that somebody pauses."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from clientmgr.base.database import Database
from clientmgr.base.settings import Settings
from clientmgr.broker.postgres.transport import PostgresBroker
from clientmgr.contracts import topics
from streaming import writer
from streaming.runtime.daemon import consume_on
from tests.cli.calling import Cli
from tests.streaming.rig import event


def test_events_of_an_unknown_customer_are_replayed_and_arrive(
    database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path
) -> None:
    cli = Cli.on(database, tmp_path)
    settings = settings_for(database).model_copy(update={"unknown_tenant_grace_s": 0.0})

    async def write() -> None:
        async with PostgresBroker(database, settings) as broker:
            await broker.ensure_subscription(topics.WRITER, topics.WRITER)
            await broker.ensure_topic(topics.WRITER_ERRORS)
            await consume_on(broker, writer.DAEMON, settings, asyncio.Event(), burst=True)

    # The topic is well known: whoever publishes right after `migrate` need not make it.
    cli.ok("publish", topics.WRITER, json.dumps(event("registered", customer=31, client="c1")))
    asyncio.run(write())
    (failed,) = cli.ok("failures", "list", "--json").json
    assert (failed["error_class"], failed["tenant"]) == ("UnknownTenantError", "31")
    cli.ok("tenants", "activate", "31")
    cli.ok("failures", "replay", "--error-class", "UnknownTenantError", "--yes")
    asyncio.run(write())
    assert cli.ok("devices", "show", "--customer", "31", "--client", "c1", "--json").json
    (replayed,) = cli.ok("failures", "list", "--state", "replayed", "--json").json
    assert replayed["replay"] == "done"


def test_a_paused_subscription_shows_in_the_list_and_who_resumes_is_audited(
    database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path
) -> None:
    cli = Cli.on(database, tmp_path)
    cli.ok("publish", topics.WRITER, json.dumps(event("registered", customer=31, client="c1")))
    refused = cli("topics", "pause", "nobody", "--reason", "r", "--yes")
    assert (refused.code, "clientmgr topics" in refused.err, "ensure_" in refused.err) == (1, True, False)

    async def subscribe() -> None:
        async with PostgresBroker(database, settings_for(database)) as broker:
            await broker.ensure_subscription(topics.WRITER, topics.WRITER)

    asyncio.run(subscribe())
    assert cli("topics", "pause", topics.WRITER, "--reason", "r", stdin=b"n\n").code == 1
    assert "is paused" in cli.ok("topics", "pause", topics.WRITER, "--reason", "a bad release", "--yes").out
    assert "was paused already" in cli.ok("topics", "pause", topics.WRITER, "--reason", "again", "--yes").out
    assert "a bad release)" in cli.ok("topics").out
    (topic,) = [one for one in cli.ok("topics", "--json").json if one["topic"] == topics.WRITER]
    assert topic["subscriptions"][0]["pause"]["reason"] == "a bad release"
    assert "goes on" in cli.ok("topics", "resume", topics.WRITER).out
    assert "was not paused" in cli.ok("topics", "resume", topics.WRITER).out
    actions = [row["action"] for row in cli.ok("audit", "list", "--json").json]
    assert actions[:2] == ["subscription.resume", "subscription.pause"]
