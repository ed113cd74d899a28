"""Who signs out or is removed is out at once: on every dashboard, and where they watch live positions."""

import asyncio
import html
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.live.tokens import make_token, read_token
from clientmgr.local.embedded.redis import EmbeddedRedis
from clientmgr.operations import ended_sessions
from clientmgr.operations.ending_sessions import store_ended
from clientmgr_dashboard.access.authentication import COOKIE
from tests.broker.recording import until
from tests.dashboard.house import PASSWORDS, House, Visit, serving, sign_in, write_users
from tests.databases import cut_readers
from tests.live import serving as live
from tests.live.stream import own_stream
from tests.waiting import eventually

LIVE_KEY = SecretStr("a key of live tokens")


def with_users(house: House, folder: Path) -> tuple[Settings, Path]:
    users = write_users(folder)
    changed = {
        "dashboard_users_file": str(users),
        "dashboard_session_key": SecretStr("a key of some length"),
        "live_token_key": LIVE_KEY,
    }
    return house.settings.model_copy(update=changed), users


def live_token(visit: Visit) -> str:
    found = re.search(r"#token=([^\"]+)", html.unescape(visit.see("/live")))
    assert found is not None
    return found[1]


def refused(address: str, cookie: str) -> bool:
    return httpx.get(f"{address}/tenants", cookies={COOKIE: cookie}).status_code == 303


def test_a_copied_cookie_is_worth_nothing_after_sign_out_on_any_dashboard(house: House, tmp_path: Path) -> None:
    settings, _ = with_users(house, tmp_path)
    with serving(settings) as here, serving(settings) as there:
        cookie, other = sign_in(here, "vera"), sign_in(here, "vera")
        assert not refused(there, cookie)
        with Visit(base_url=here, cookies={COOKIE: cookie}) as visit:
            assert visit.submit("/sign-out", {}).status_code == 303
        assert refused(here, cookie)
        eventually(lambda: refused(there, cookie), "the other dashboard knows", within_s=3)
        assert not refused(there, other)
    with serving(settings) as restarted:
        assert refused(restarted, cookie)
        assert not refused(restarted, other)


def test_a_user_who_is_removed_while_the_dashboard_is_down_stays_out_also_when_named_again(
    house: House, tmp_path: Path
) -> None:
    settings, users = with_users(house, tmp_path)
    lines = users.read_text()
    with serving(settings) as address:
        cookie = sign_in(address, "vera")
    users.write_text("\n".join(line for line in lines.splitlines() if not line.startswith("vera:")))
    with serving(settings) as address:
        assert refused(address, cookie)
        eventually(
            lambda: house.query("SELECT 1 FROM clientmgr.ended_sessions WHERE user_name = 'vera' AND session_id = ''"),
            "her sessions have ended",
        )
        users.write_text(lines)
        again = eventually(
            lambda: httpx.post(f"{address}/sign-in", data={"name": "vera", "password": PASSWORDS["vera"]}).cookies,
            "she may sign in again",
        )[COOKIE]
        assert refused(address, cookie)
        assert not refused(address, again)


def test_nobody_is_let_in_while_it_is_not_known_who_signed_out(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, _ = with_users(house, tmp_path)
    with serving(settings) as address:
        cookie = sign_in(address, "vera")
        assert httpx.get(f"{address}/tenants", cookies={COOKIE: cookie}).status_code == 200
        monkeypatch.setattr(ended_sessions, "STALE_AFTER_S", 0.0)
        assert httpx.get(f"{address}/tenants", cookies={COOKIE: cookie}).status_code == 503
        assert httpx.get(f"{address}/static/dashboard.css", cookies={COOKIE: cookie}).status_code == 200


@pytest.mark.anyio
async def test_a_session_that_ends_is_known_although_the_kept_connection_was_cut(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_sessions, "READ_EVERY_S", 600.0)
    monkeypatch.setattr(ended_sessions, "READ_AGAIN_S", 600.0)
    sessions = ended_sessions.EndedSessions(database)
    following = asyncio.create_task(sessions.run())
    await asyncio.wait_for(sessions.loaded.wait(), 20)
    await until(lambda: cut_readers(database, "ended_sessions") == 1, "a connection that is kept")
    store_ended(database, {"one": ("vera", time.time() + 3600)})
    await until(lambda: sessions.is_ended("one", "vera", time.time()), "the end of the session")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.mark.anyio
async def test_a_read_that_outlives_its_reader_leaves_no_connection(database: Database) -> None:
    with database.connect(Role.OWNER, autocommit=True) as owner, database.connect(Role.OWNER) as locking:

        def reading(state: str = "%") -> bool:
            found = owner.execute(
                "SELECT FROM pg_stat_activity WHERE usename = 'clientmgr_reader' AND datname = current_database()"
                " AND query LIKE '%%clientmgr.ended_sessions%%' AND state LIKE %s",
                [state],
            )
            return found.rowcount > 0

        sessions = ended_sessions.EndedSessions(database)
        locking.execute("LOCK TABLE clientmgr.ended_sessions")
        following = asyncio.create_task(sessions.run())
        await until(lambda: reading("active"), "a read that waits")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        locking.rollback()
        await until(lambda: not reading(), "its connection is closed")


def test_live_connections_end_with_the_session_or_the_user_and_their_tokens_too(
    house: House, tmp_path: Path, redis_server: EmbeddedRedis, settings_for: Callable[[Database], Settings]
) -> None:
    settings, users = with_users(house, tmp_path)
    broadcast = own_stream(
        settings_for(house.database).model_copy(
            update={"redis_url": redis_server.url, "live_ws_port": 0, "live_token_key": LIVE_KEY}
        )
    )

    async def watch(address: str) -> None:
        with (
            Visit(base_url=address, cookies={COOKIE: sign_in(address, "vera")}) as vera,
            Visit(base_url=address, cookies={COOKIE: sign_in(address, "otto")}) as otto,
        ):
            hers, his = live_token(vera), live_token(otto)
            assert read_token(LIVE_KEY.get_secret_value().encode(), hers).user == "vera"
            others = make_token(LIVE_KEY.get_secret_value().encode(), ["*"], 60)
            async with (
                live.serving(broadcast) as served,
                live.watching(served, "E1", token=hers) as her_view,
                live.watching(served, "E1", token=his) as his_view,
                live.watching(served, "E1", token=others) as view_of_another,
            ):
                started = time.monotonic()
                assert (await asyncio.to_thread(vera.submit, "/sign-out", {})).status_code == 303
                assert await her_view.closed() == (4401, "the session has ended")
                assert time.monotonic() - started < 5
                async with live.watching(served, token=hers) as again:
                    assert await again.closed() == (4401, "the session has ended")
                assert await his_view.subscribe("E2") == []
                kept = [line for line in users.read_text().splitlines() if not line.startswith("otto:")]
                users.write_text("\n".join(kept))
                assert await his_view.closed() == (4401, "the session has ended")
                assert await view_of_another.subscribe("E2") == []

    with serving(settings) as address:
        asyncio.run(watch(address))
