"""While the database is away, the dashboard says so."""

from pathlib import Path

import httpx
import pytest

from clientmgr.settings import load_settings
from streaming.dashboard import desk
from tests.dashboard.house import serving


def test_a_database_that_is_away_is_told_to_people_scripts_and_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "CONNECTION_WITHIN_S", 0.2)
    nobody = load_settings(
        database_url="postgresql://nobody@127.0.0.1:1/none", data_dir=tmp_path, audit_hash_key="key", dashboard_port=0
    )
    with serving(nobody) as address:
        assert httpx.get(f"{address}/healthz").status_code == 503
        page = httpx.get(f"{address}/tenants")
        assert page.status_code == 503
        assert "The database does not answer." in page.text
        answer = httpx.get(f"{address}/api/v1/tenants")
        assert (answer.status_code, answer.json()["detail"]) == (503, "The database does not answer.")
        assert httpx.get(f"{address}/static/dashboard.css").status_code == 200
