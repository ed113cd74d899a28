"""Nightly jobs: done for every tenant, or not done."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from clientmgr.base.database import Role
from clientmgr.operations.dagster_standing import JobRuns
from clientmgr.operations.nightly_jobs import DAGSTER_JOBS, NightlyWork, nightly_work
from clientmgr_dashboard.operations import overview
from tests.dashboard.house import QUIET, House, Visit, serving
from tests.waiting import eventually

WAITED = timedelta(days=3)


def work_of(house: House, name: str) -> NightlyWork:
    with house.database.connect(Role.READER) as connection:
        (found,) = [work for work in nightly_work(connection) if work.name == name]
    return found


def activated_long_ago(house: House, customer: int) -> None:
    house.query(
        "UPDATE clientmgr.tenants SET activated_at = %s WHERE customer_id = %s", datetime.now(UTC) - WAITED, customer
    )


def test_work_that_left_a_tenant_out_is_late_though_the_others_are_done(spare_house: House) -> None:
    assert work_of(spare_house, "tenant metrics").state == "fresh"
    activated_long_ago(spare_house, QUIET)
    late = work_of(spare_house, "tenant metrics")
    assert late.state == "late"
    assert late.done_at is not None
    assert datetime.now(UTC) - late.done_at >= WAITED


def test_work_that_was_never_done_is_late_once_a_tenant_has_waited_a_night_for_it(spare_house: House) -> None:
    assert work_of(spare_house, "orphan search").state == "never"
    activated_long_ago(spare_house, QUIET)
    late = work_of(spare_house, "orphan search")
    assert (late.state, late.done_at) == ("late", None)
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        problems = {one["text"] for one in visit.get("/api/v1/overview").json()["problems"]}
    assert "orphan search was not done last night" in problems
    assert "tenant metrics was not done last night" in problems


@pytest.mark.parametrize("status", ["activating", "deleting", "deleted"])
def test_only_active_tenants_wait(spare_house: House, status: str) -> None:
    activated_long_ago(spare_house, QUIET)
    spare_house.query("UPDATE clientmgr.tenants SET status = %s WHERE customer_id = %s", status, QUIET)
    assert work_of(spare_house, "tenant metrics").state == "fresh"


def test_the_audits_verification_and_the_erasure_are_jobs_like_others(spare_house: House) -> None:
    assert work_of(spare_house, "audit verification").state == "never"
    spare_house.query("INSERT INTO clientmgr.audit_verifications (findings) VALUES (2)")
    assert work_of(spare_house, "audit verification").failures == 2
    spare_house.query("INSERT INTO clientmgr.erasure_sweeps (finished_at) VALUES (now() - interval '1 hour')")
    assert work_of(spare_house, "erasure sweep").state == "fresh"
    spare_house.query("INSERT INTO clientmgr.erasure_sweeps (error) VALUES ('no')")
    assert work_of(spare_house, "erasure sweep").state == "failed"
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        problems = {one["text"] for one in visit.get("/api/v1/overview").json()["problems"]}
    assert {"the audit's verification has 2 findings", "the newest run of erasure sweep failed"} <= problems


def test_the_overview_says_of_a_job_that_it_has_not_run_yet_or_runs_now(
    spare_house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = {DAGSTER_JOBS["orphan search"]: JobRuns("", None, None, None, None, is_under_way=True)}
    with serving(spare_house.settings) as address, Visit(base_url=address) as visit:
        assert badges(visit, "orphan search") == ["not yet"]
        monkeypatch.setattr(overview, "nightly_work", lambda connection, _: nightly_work(connection, under_way))
        eventually(lambda: badges(visit, "orphan search") == ["runs now"], "it runs")
        assert badges(visit, "audit verification") == ["not yet"]


def badges(visit: Visit, job: str) -> list[str]:
    """What stands beside a job's name."""
    (row,) = [line for line in visit.see("/").splitlines() if '<th scope="row">' in line and f"{job}<" in line]
    return re.findall(r'<span class="badge[^>]*>([^<]*)<', row.partition("last success")[0])
