"""What operators see of erasure: a command, the record of sweeps, a metric, and a refusal to sweep with a wrong key."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from clientmgr.base.database import Role
from clientmgr.base.errors import SettingsError
from clientmgr.erasure.schedule import erasure_lag_s, sweep_every_s
from clientmgr.erasure.sweep import sweep
from tests.cli.calling import Cli
from tests.erasure.deleting import TOPIC, Erasing

pytestmark = pytest.mark.anyio


async def test_an_operator_sweeps_and_sees_what_was_done(erasing: Erasing, tmp_path: Path) -> None:
    await erasing.log({"customerId": 7, "contactId": 42})
    erasing.delete_contact(42)
    cli = Cli.on(erasing.database, tmp_path)

    report = cli.ok("erasure", "sweep", "--json").json
    (listed,) = cli.ok("erasure", "list", "--json").json

    assert (report["erased"], report["looked_at"]) == ({TOPIC: 1}, {TOPIC: 1})
    assert listed["counts"]["erased"] == {TOPIC: 1}
    assert (listed["finished_at"] > listed["started_at"], listed["error"]) == (True, "")
    assert "started at" in cli.ok("erasure", "list").out


async def test_the_lag_counts_from_the_last_finished_sweep(erasing: Erasing) -> None:
    async def lag() -> float:
        async with await erasing.database.connect_async(Role.READER, autocommit=True) as connection:
            return await erasure_lag_s(connection)

    erasing.query("UPDATE clientmgr.tenants SET registered_at = now() - interval '3 days'")
    assert await lag() > 2 * 86400
    erasing.query("INSERT INTO clientmgr.erasure_sweeps DEFAULT VALUES")
    assert await lag() > 2 * 86400, "one that did not finish does not count"
    erasing.sweep()
    assert await lag() < 3600


async def test_a_sweep_is_due_four_times_in_the_time_that_erasure_may_take(erasing: Erasing) -> None:
    assert sweep_every_s(erasing.settings) == 6 * 3600
    assert sweep_every_s(erasing.settings.model_copy(update={"erasure_sweep_minutes": 5.0})) == 300


async def test_with_another_key_nothing_is_swept(erasing: Erasing) -> None:
    settings = erasing.settings.model_copy(update={"audit_hash_key": SecretStr("another")})
    with pytest.raises(SettingsError, match="AUDIT_HASH_KEY"):
        sweep(erasing.database, settings)
    assert erasing.query("SELECT FROM clientmgr.erasure_sweeps") == []
