"""Who launched a run: its tag and the audit log say who was signed in, however the request was written."""

import json
from collections.abc import Callable
from typing import Any

import dagster as dg
import httpx
import pytest
from dagster._core.execution.backfill import BulkActionStatus
from dagster_graphql.schema import create_schema

from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.contracts.run_tags import LAUNCHED_BY, REQUESTED_BY
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dagster.definitions import build_definitions
from clientmgr_dashboard.dagster_ui.mutations import about
from tests.dagster.doors import LAUNCH, REPOSITORY, Doors, ask, data_of, params

CLAIMED = {LAUNCHED_BY: "dagster:mallory", REQUESTED_BY: "Compliance Officer", "kept": "yes"}
TAGS = [{"key": key, "value": value} for key, value in CLAIMED.items()]
SECRET = "token-that-nobody-may-see"

_INLINE = """
fragment Launched on LaunchRunResult { __typename ... on LaunchRunSuccess { run { runId } } }
mutation Other { setNuxSeen }
mutation Wanted { alias: launchRun(executionParams: {
    selector: {repositoryLocationName: "small", repositoryName: "__repository__", jobName: "small_job"},
    runConfigData: {}, executionMetadata: {tags: [{key: "clientmgr/launched_by", value: "dagster:mallory"},
    {key: "clientmgr/requested_by", value: "Compliance Officer"}, {key: "kept", value: "yes"}]}}) { ...Launched } }
"""


def newest_run(doors: Doors) -> dg.DagsterRun:
    return doors.runs()[0]


def launch(client: httpx.Client, **options: Any) -> str:
    answer = data_of(ask(client, LAUNCH, {"params": params(**options)}))["launchRun"]
    assert answer["__typename"] == "LaunchRunSuccess", answer
    return str(answer["run"]["runId"])


def by_variables(client: httpx.Client) -> None:
    launch(client, tags=CLAIMED)


def by_the_old_name(client: httpx.Client) -> None:
    document = LAUNCH.replace("launchRun(", "launchPipelineExecution(")
    data_of(ask(client, document, {"params": params(tags=CLAIMED)}))


def inline_with_alias_and_fragment(client: httpx.Client) -> None:
    body = {"query": _INLINE, "operationName": "Wanted"}
    assert data_of(client.post("/graphql", json=body))["alias"]["__typename"] == "LaunchRunSuccess"


def several_at_once(client: httpx.Client) -> None:
    document = (
        """mutation($all: [ExecutionParams!]!) { launchMultipleRuns(executionParamsList: $all) { __typename } }"""
    )
    data_of(ask(client, document, {"all": [params(tags=CLAIMED)]}))


def as_a_re_execution(client: httpx.Client) -> None:
    parent = launch(client, tags=CLAIMED)
    document = """mutation($p: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $p) { __typename
        ... on Error { message } } }"""
    again = {"parentRunId": parent, "strategy": "ALL_STEPS", "extraTags": TAGS, "useParentRunTags": True}
    assert data_of(ask(client, document, {"p": again}))["launchRunReexecution"]["__typename"] == "LaunchRunSuccess"


def as_a_re_execution_by_params(client: httpx.Client) -> None:
    parent = launch(client)
    document = """mutation($p: ExecutionParams!) { launchPipelineReexecution(executionParams: $p) { __typename
        ... on Error { message } } }"""
    again = params(tags=CLAIMED)
    again["executionMetadata"] |= {"parentRunId": parent, "rootRunId": parent}
    found = data_of(ask(client, document, {"p": again}))["launchPipelineReexecution"]
    assert found["__typename"] == "LaunchRunSuccess", found


def as_a_job_backfill_at_once(client: httpx.Client) -> None:
    start_backfill(client, forceSynchronousSubmission=True)


def start_backfill(client: httpx.Client, **more: Any) -> str:
    document = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename
        ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""
    selector = {"repositorySelector": REPOSITORY, "partitionSetName": "partitioned_job_partition_set"}
    wanted = {"selector": selector, "partitionNames": ["8"], "tags": TAGS, **more}
    found = data_of(ask(client, document, {"p": wanted}))["launchPartitionBackfill"]
    assert found["__typename"] == "LaunchBackfillSuccess", found
    return str(found["backfillId"])


@pytest.mark.parametrize(
    "way",
    [
        by_variables,
        by_the_old_name,
        inline_with_alias_and_fragment,
        several_at_once,
        as_a_re_execution,
        as_a_re_execution_by_params,
        as_a_job_backfill_at_once,
    ],
)
def test_a_run_says_who_launched_it_whatever_the_request_claims(
    doors: Doors, way: Callable[[httpx.Client], None]
) -> None:
    with doors.visit("otto") as otto, doors.local() as local:
        for client, actor in ((otto, "dagster:otto"), (local, "dagster:local")):
            before = len(doors.runs())
            way(client)
            assert len(doors.runs()) > before
            tags = newest_run(doors).tags
            assert tags[LAUNCHED_BY] == actor
            assert REQUESTED_BY not in tags
            assert tags.get("kept") == "yes"


def test_a_backfill_says_so_too_when_it_is_started_again_or_resumed(doors: Doors) -> None:
    with doors.visit("otto") as otto, doors.local() as local:
        started = start_backfill(local)
        assert doors.instance.get_backfill(started).tags == {"kept": "yes", LAUNCHED_BY: "dagster:local"}  # type: ignore[union-attr]
        cancel = "mutation($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }"
        data_of(ask(otto, cancel, {"id": started}))
        cancelled = doors.instance.get_backfill(started)
        assert cancelled is not None
        assert cancelled.tags[LAUNCHED_BY] == "dagster:local", "who cancels it has not launched it"
        data_of(ask(otto, cancel.replace("cancel", "resume"), {"id": started}))
        assert doors.instance.get_backfill(started).tags[LAUNCHED_BY] == "dagster:otto"  # type: ignore[union-attr]
        doors.instance.update_backfill(cancelled._replace(status=BulkActionStatus.CANCELED))
        again = """mutation($p: ReexecutionParams!) { reexecutePartitionBackfill(reexecutionParams: $p) { __typename
            ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""
        wanted = {"parentRunId": started, "strategy": "ALL_STEPS"}
        found = data_of(ask(otto, again, {"p": wanted}))["reexecutePartitionBackfill"]
        assert doors.instance.get_backfill(found["backfillId"]).tags[LAUNCHED_BY] == "dagster:otto"  # type: ignore[union-attr]


def test_a_launch_is_audited_with_who_asked_for_what_and_without_its_config(doors: Doors) -> None:
    config = {"ops": {"work": {"config": {"customer_id": "1001", "token": SECRET}}}}
    with doors.visit("otto") as otto:
        for form in (config, json.dumps(config)):
            run_id = launch(otto, config=form, tags={"dagster/partition": "7", "note": SECRET})
            intended, done = doors.audited("dagster.launchRun")[-2:]
            assert intended == (
                "dagster:otto",
                "intended",
                {"jobName": "small_job", "repositoryLocationName": "small", "customer": "1001", "partition": "7"},
            )
            assert done == ("dagster:otto", "done", {"answer": "LaunchRunSuccess", "run_id": run_id})
        data_of(ask(otto, LAUNCH, {"params": params("no_such_job")}))
        assert doors.audited("dagster.launchRun")[-1][1:] == ("failed", {"answer": "PipelineNotFoundError"})


def test_other_changes_are_audited_too(doors: Doors) -> None:
    sensor = {**REPOSITORY, "sensorName": "small_sensor"}
    with doors.visit("otto") as otto:
        run_id = launch(otto)
        terminate = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
        delete = "mutation($id: String!) { deleteRun(runId: $id) { __typename } }"
        start = "mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename } }"
        wipe = """mutation { wipeAssets(assetPartitionRanges: [{assetKey: {path: ["numbers"]}}]) { __typename } }"""
        for document, variables in (
            (terminate, {"id": run_id}),
            (delete, {"id": run_id}),
            (start, {"s": sensor}),
            (wipe, None),
        ):
            data_of(ask(otto, document, variables))
        otto.post("/report_asset_materialization/numbers", json={"partition": "7"}).raise_for_status()
    assert doors.audited("dagster.terminateRun")[0] == ("dagster:otto", "intended", {"runId": run_id})
    assert [outcome for _, outcome, _ in doors.audited("dagster.deleteRun")] == ["intended", "done"]
    assert doors.audited("dagster.startSensor")[0][2]["sensorName"] == "small_sensor"
    assert doors.audited("dagster.wipeAssets")[0][2] == {"assetKey": "numbers"}
    assert doors.audited("dagster.report_asset_materialization") == [("dagster:otto", "intended", {"asset": "numbers"})]


def test_a_change_that_cant_be_audited_is_not_made(doors: Doors) -> None:
    before = len(doors.runs())
    with doors.database.connect(Role.OWNER, autocommit=True) as connection, doors.visit("otto") as otto:
        connection.execute("REVOKE INSERT ON clientmgr.audit_log FROM clientmgr_writer")
        try:
            answer = ask(otto, LAUNCH, {"params": params()})
            assert answer.json()["errors"]
        finally:
            connection.execute("GRANT INSERT ON clientmgr.audit_log TO clientmgr_writer")
    assert len(doors.runs()) == before


def test_long_lists_are_cut_short_in_the_audit_log() -> None:
    found = about({"backfillParams": {"partitionNames": [str(number) for number in range(5000)]}})
    assert str(found["partitionNames"]).endswith("19 and 4980 more")
    assert about({"executionParams": {"runConfigData": "{not JSON", "executionMetadata": {"tags": []}}}) == {}


def test_every_mutation_of_dagster_has_a_resolver_that_can_be_wrapped() -> None:
    mutations = create_schema().graphql_schema.mutation_type
    assert mutations is not None
    assert len(mutations.fields) > 30
    assert all(field.resolve for field in mutations.fields.values())


@pytest.mark.parametrize(
    ("tags", "actor"),
    [
        ({LAUNCHED_BY: "dagster:otto", REQUESTED_BY: "legal"}, "dagster:otto"),
        ({REQUESTED_BY: "legal"}, "legal"),
        ({}, "dagster-cli:"),
    ],
)
def test_an_account_s_deletion_is_audited_as_who_launched_it(
    settings: Settings, database: Database, instance: dg.DagsterInstance, tags: dict[str, str], actor: str
) -> None:
    TenantSchemaManager(database, settings).activate([9], actor="test")
    job = build_definitions().resolve_job_def("account_deletion")
    config = {"ops": {"delete_account": {"config": {"customer_id": "9"}}}}
    claiming = {"ops": {"delete_account": {"config": {"customer_id": "9", "requested_by": "Compliance Officer"}}}}
    with pytest.raises(dg.DagsterInvalidConfigError):
        job.execute_in_process(claiming, tags=tags, instance=instance)
    assert job.execute_in_process(config, tags=tags, instance=instance).success
    with database.connect(Role.READER) as connection:
        actors = connection.execute("SELECT DISTINCT actor FROM clientmgr.audit_log WHERE action = 'account.delete'")
        ((found,),) = actors.fetchall()
    assert found.startswith(actor)
