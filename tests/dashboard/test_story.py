"""The demo's story, as README tells it: why a message was not sent, what to mend, and how it then arrives.

In a real browser. STORY_SCREENSHOTS=FOLDER keeps what each step looked like.
"""

import asyncio
import os
from pathlib import Path

import pytest

from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.broker.factory import open_broker
from clientmgr.contracts import topics
from clientmgr.contracts.topics import DeviceMapperTopics
from clientmgr.local.demo import story
from clientmgr.local.demo.scenario import prepare
from clientmgr.local.embedded.server import free_port
from streaming.device_mapper import mapper
from streaming.runtime.daemon import consume_on
from tests.browser import HOW_TO_GET_IT, browsing, find_chromium
from tests.cli.calling import Cli
from tests.dashboard.house import House, serving
from tests.keys import TEST_KEY
from tests.streaming.rig import read_topic

README = Path(__file__).parent.parent.parent / "README.md"
MESSAGE = README.parent / "docs" / "examples" / "message.json"
TX = DeviceMapperTopics("tx", "dg00")
WHOM = ("--customer", str(story.SHOP), "--contact", str(story.UNREACHED))


@pytest.fixture
def house(database: Database, tmp_path: Path) -> House:
    """The demo's tenants, past and story; its writer has worked once."""
    settings = load_settings(
        database_url=database.url,
        data_dir=tmp_path / "data",
        audit_hash_key=TEST_KEY,
        dashboard_port=0,
        live_ws_port=free_port(),
        dagster_port=free_port(),
        client_fetcher_fallback_enabled=False,
    )
    house = House(settings, database)
    prepare(settings)
    house.publish_and_write()
    return house


@pytest.fixture
def cli(house: House) -> Cli:
    return Cli.on(house.database, house.settings.data_dir, CLIENT_FETCHER_FALLBACK_ENABLED="false")


def map_messages(house: House) -> None:
    async def run() -> None:
        async with open_broker(house.settings, house.database) as broker:
            await broker.ensure_topic(TX.input)
            await broker.ensure_subscription(TX.subscription, TX.input)
            await consume_on(broker, mapper.daemon(TX), house.settings, asyncio.Event(), burst=True)

    asyncio.run(run())


@pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_GET_IT)
def test_why_a_message_was_not_sent_is_found_mended_replayed_and_seen_to_arrive(
    house: House, cli: Cli, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("STORY_SCREENSHOTS") or tmp_path)
    explained = ("device-mapper", "explain", *WHOM, "--message", str(MESSAGE), "--json")
    assert cli.ok(*explained).json["reason"] == "PUSH_DISABLED"

    with serving(house.settings) as address, browsing(tmp_path) as page:
        page.open(f"{address}/devices?customerId={story.SHOP}&contactId={story.UNREACHED}")
        page.wait_for(story.client_of(story.UNREACHED))
        page.screenshot(folder / "story-1-contact.png")
        page.click(story.client_of(story.UNREACHED))
        page.wait_for("4.1.3")
        page.screenshot(folder / "story-2-device.png")

        page.open(f"{address}/failures?customerId={story.SHOP}")
        page.wait_for("pushEnabled", "6")
        page.screenshot(folder / "story-3-failures.png")
        page.open(f"{address}/failures?customerId={story.SHOP}&contains={story.UNREACHED}")
        (ref,) = [one["id"] for one in open_failures(cli) if one["key"] == story.client_of(story.UNREACHED)]
        page.click(str(ref))
        page.click("Edit and replay")
        page.wait_for("Check and replay")
        page.evaluate(
            "(() => { const text = document.getElementById('text');"
            """ text.value = text.value.replace('"pushEnabled": "yes"', '"pushEnabled": true'); })()"""
        )
        page.screenshot(folder / "story-4-mended.png")
        page.click("Check and replay")
        page.wait_for("replayed")
        house.publish_and_write()
        page.open(f"{address}/failures/{ref}")
        page.wait_for("done")
        page.screenshot(folder / "story-5-done.png")

        page.open(f"{address}/devices?customerId={story.SHOP}&contactId={story.UNREACHED}")
        page.wait_for("4.2.0")
        assert page.errors == []

    assert cli.ok(*explained).json["reason"] is None
    cli.ok("publish", TX.input, "--file", str(MESSAGE))
    map_messages(house)
    assert "parcel-4711" in cli.ok("tail", TX.outputs["apple"], "--from-start", "--burst").out


def test_the_story_is_told_once_and_its_failures_can_all_be_put_away(house: House, cli: Cli) -> None:
    told = len(read_topic(house.database, topics.WRITER))
    assert [one["tenant"] for one in open_failures(cli)] == [str(story.SHOP)] * 6
    prepare(house.settings)
    assert len(read_topic(house.database, topics.WRITER)) == told
    cli.ok("failures", "drop", "--customer", str(story.SHOP), "--yes")
    assert open_failures(cli) == []


def test_its_tenants_have_names_that_somebody_may_change(house: House, cli: Cli) -> None:
    cli.ok("tenants", "rename", str(story.SHOP), "My Shop")
    prepare(house.settings)
    assert [one["name"] for one in cli.ok("tenants", "list", "--json").json][:2] == ["Harbour Bank", "My Shop"]


def test_the_charts_have_ninety_nights_that_say_they_are_made_up(house: House) -> None:
    nights = """SELECT count(*), count(DISTINCT customer_id), min(collected_at) < now() - interval '88 days',
        max(collected_at) <= now(), bool_and(tokens_none_share + tokens_valid_share + tokens_invalid_share
            + tokens_superseded_share BETWEEN 0.999 AND 1.001) FROM clientmgr.dashboard_tenant_metrics_history
        WHERE run_id = 'demo'"""
    ((count, customers, is_long, is_past, adds_up),) = house.query(nights)
    assert count in (178, 180)
    assert (customers, is_long, is_past, adds_up) == (2, True, True, True)
    day = "SELECT count(*), max(at) - min(at) < interval '1 day', max(events) < 0 FROM clientmgr.samples"
    ((samples, is_a_day, is_before_the_log),) = house.query(day)
    assert (samples > 1300, is_a_day, is_before_the_log) == (True, True, True)
    prepare(house.settings)
    assert house.query(nights)[0][0] == count, "made once"
    assert house.query(day)[0][0] == samples


def test_readme_has_the_commands_of_the_story() -> None:
    text = README.read_text()
    for said in (
        f"device-mapper explain {' '.join(WHOM)} --message docs/examples/message.json",
        f"publish {TX.input} --file docs/examples/message.json",
        f"tail {TX.outputs['apple']} --from-start",
        f"failures list --customer {story.SHOP}",
        f"failures drop --customer {story.SHOP}",
        story.client_of(story.UNREACHED),
    ):
        assert said in text, said


def open_failures(cli: Cli) -> list[dict[str, object]]:
    found: list[dict[str, object]] = cli.ok("failures", "list", "--json").json
    return found
