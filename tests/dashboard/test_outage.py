"""While the database is away, the dashboard says so."""

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from clientmgr.base.settings import Settings, load_settings
from clientmgr_dashboard import context
from clientmgr_dashboard.access.authentication import COOKIE, Authenticator
from clientmgr_dashboard.access.users import Users
from tests.dashboard.house import PASSWORDS, Visit, serving, write_users
from tests.keys import TEST_KEY


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a database that is away."""
    monkeypatch.setattr(context, "CONNECTION_WITHIN_S", 0.2)
    return load_settings(
        database_url="postgresql://nobody@127.0.0.1:1/none",
        data_dir=tmp_path,
        audit_hash_key=TEST_KEY,
        dashboard_port=0,
    )


def test_people_scripts_and_probes_learn_that_the_database_is_away(nobody: Settings) -> None:
    with serving(nobody) as address:
        assert httpx.get(f"{address}/healthz").status_code == 503
        page = httpx.get(f"{address}/tenants")
        assert page.status_code == 503
        assert "The database does not answer." in page.text
        answer = httpx.get(f"{address}/api/v1/tenants")
        assert (answer.status_code, answer.json()["detail"]) == (503, "The database does not answer.")
        assert httpx.get(f"{address}/static/dashboard.css").status_code == 200


def test_nobody_signs_in_unrecorded_and_the_page_says_why(nobody: Settings, tmp_path: Path) -> None:
    settings = nobody.model_copy(update={"dashboard_users_file": str(write_users(tmp_path))})
    with serving(settings) as address:
        answer = httpx.post(f"{address}/sign-in", data={"name": "vera", "password": PASSWORDS["vera"]})
        assert answer.status_code == 503
        assert "The database does not answer." in answer.text
        assert "set-cookie" not in answer.headers


def test_whoever_signs_out_is_signed_out_though_it_can_not_be_recorded(nobody: Settings, tmp_path: Path) -> None:
    users = write_users(tmp_path)
    settings = nobody.model_copy(
        update={"dashboard_users_file": str(users), "dashboard_session_key": SecretStr("a key of some length")}
    )
    sessions = Authenticator(settings).sessions
    session = sessions.start(Users(users).find("vera"))
    signed_in = sessions.cookie(session)
    with serving(settings) as address, Visit(base_url=address, cookies={COOKIE: signed_in}) as visit:
        # Who else has signed out is not known, so nobody is let in.
        assert visit.get("/tenants").status_code == 503
        answer = visit.post("/sign-out", data={"csrf_token": sessions.csrf_token(session)})
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
        assert f"{COOKIE}=;" in answer.headers["set-cookie"]
