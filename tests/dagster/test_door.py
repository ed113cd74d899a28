"""The door to Dagster's UI: who gets in, from which pages, and by which requests. No attack leaves a run."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from starlette.routing import Mount, Route, WebSocketRoute

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.server import free_port
from clientmgr.local.processes.dagster_runs import DagsterRuns
from clientmgr.local.processes.system import wait_for_ui
from clientmgr.operations.dagster_addresses import ui_url
from clientmgr_dashboard.access import sessions
from clientmgr_dashboard.access.authentication import COOKIE, Authenticator, sessions_of
from clientmgr_dashboard.access.exposure import ensure_dagster_is_not_open_to_others
from clientmgr_dashboard.access.sessions import Sessions
from clientmgr_dashboard.dagster_ui.routes import ROUTES, Needs, needs_of_change
from tests.dagster.doors import LAUNCH, LAUNCH_INLINE, VERSION, Doors, ask, data_of, params, served
from tests.dashboard.house import PASSWORDS
from tests.dashboard.test_tls import make_certificate, with_tls

FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},  # another port of this machine
]
FORM_TYPES = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def _no_run_is_left(doors: Doors) -> Iterator[None]:
    before = len(doors.runs())
    yield
    assert len(doors.runs()) == before


@pytest.mark.parametrize(
    "document",
    [
        LAUNCH_INLINE,
        f"query Read {VERSION} {LAUNCH_INLINE.replace('mutation', 'mutation Launch', 1)}",
        f"# {VERSION}\n{LAUNCH_INLINE}",
        "subscription { locationStateChangeEvents { event { message } } }",
        "fragment F on Query { version }",
        "{" * 5_000,
        "not GraphQL",
    ],
)
def test_a_get_that_is_not_provably_a_query_is_refused(doors: Doors, document: str) -> None:
    with doors.local() as local:
        for more in ({}, {"operationName": "Launch"}, {"operationName": "Read"}):
            answer = local.get("/graphql", params={"query": document, **more})
            assert answer.status_code in {400, 405}, answer.text
        assert local.request("HEAD", "/graphql", params={"query": document}).status_code in {400, 405}
        twice = f"/graphql?query={quote(VERSION)}&query={quote(document)}"
        assert local.get(twice).status_code == 400


def test_a_query_by_get_is_answered_to_our_own_pages_and_to_scripts(doors: Doors) -> None:
    with doors.local() as local:
        assert data_of(local.get("/graphql", params={"query": VERSION})).keys() == {"version"}
        for headers in FOREIGN:
            assert local.get("/graphql", params={"query": VERSION}, headers=headers).status_code == 403


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_site_s_page_changes_nothing_and_is_told_nothing(doors: Doors, headers: dict[str, str]) -> None:
    with doors.local() as local, doors.visit("otto") as otto:
        for visit in (local, otto):
            assert ask(visit, LAUNCH_INLINE, **headers).status_code == 403
            assert ask(visit, VERSION, **headers).status_code == 403
            report = visit.post("/report_asset_materialization/numbers", json={"partition": "7"}, headers=headers)
            assert report.status_code == 403


@pytest.mark.parametrize("kind", FORM_TYPES)
def test_what_a_form_can_send_is_refused_also_without_an_origin(doors: Doors, kind: str) -> None:
    body = json.dumps({"query": LAUNCH_INLINE})
    with doors.local() as local:
        headers = {"Content-Type": kind} if kind else {}
        for url in ("/graphql", f"/graphql?query={quote(LAUNCH_INLINE)}", "/report_asset_materialization/numbers"):
            assert local.post(url, content=body, headers=headers).status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        [{"query": LAUNCH_INLINE}],
        {"query": [LAUNCH_INLINE]},
        {"query": None},
        {"operationName": "Launch", "extensions": {"persistedQuery": {"sha256Hash": "0" * 64}}},
        "mutation",
        {"query": " " * 300_000 + LAUNCH_INLINE},
    ],
)
def test_a_body_that_is_no_single_operation_is_refused(doors: Doors, body: object) -> None:
    with doors.local() as local:
        assert local.post("/graphql", json=body).status_code == 400
        assert local.post(f"/graphql?query={quote(VERSION)}", json={"query": LAUNCH_INLINE}).status_code == 400
        assert local.post("/graphql", content=b"\xff{", headers=JSON).status_code == 400


def test_a_request_that_breaks_off_leaves_no_error_in_the_log(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    with doors.local() as local:
        url = local.base_url
        with socket.create_connection((url.host, url.port or 80), timeout=10) as broken:
            head = f"POST /graphql HTTP/1.1\r\nHost: {url.netloc.decode()}\r\nContent-Type: application/json\r\n"
            broken.sendall(f"{head}Content-Length: 9\r\n\r\n{{".encode())
            ask(local, VERSION)  # by the time of the answer, the first request is being read
        ask(local, VERSION)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_without_sign_in_only_names_of_this_machine_are_answered(doors: Doors) -> None:
    with doors.local() as local:
        port = local.base_url.port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
            for path in ("/", "/server_info", "/graphql?query=%7Bversion%7D", "/logs/x/out"):
                assert local.get(path, headers={"Host": host}).status_code == 421, (host, path)
            assert ask(local, LAUNCH_INLINE, Host=host).status_code == 421
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            assert local.get("/server_info", headers={"Host": host}).status_code == 200


def test_who_has_not_signed_in_sees_nothing_but_that_the_server_is_well(doors: Doors) -> None:
    with doors.visit() as stranger:
        assert stranger.get("/server_info").status_code == 200
        for path in ("/", "/runs", "/dagit_info", "/logs/a/out", "/notebook", "/download_debug/x", "/favicon.ico"):
            assert stranger.get(path).status_code == 401, path
        for path in ("/_next/static/x.js", "/vendor/graphiql/graphiql.min.css", f"/graphql?query={quote(VERSION)}"):
            assert stranger.get(path).status_code == 401, path
        assert ask(stranger, VERSION).status_code == 401
        assert ask(stranger, LAUNCH_INLINE).status_code == 401
        assert stranger.post("/report_asset_materialization/numbers", json={}).status_code == 401
        stranger.cookies[COOKIE] = doors.sessions["otto"][:-2] + "xx"
        assert ask(stranger, VERSION).status_code == 401


def test_a_browser_is_sent_to_the_dashboard_and_from_there_back_to_the_page(doors: Doors) -> None:
    with doors.visit() as stranger:
        answer = stranger.get("/runs?view=all&x=a%20b", headers={"Accept": "text/html,*/*"})
    assert answer.status_code == 303
    where = urlsplit(answer.headers["location"])
    assert f"{where.scheme}://{where.netloc}{where.path}" == f"{doors.dashboard_address}/sign-in"
    wanted = parse_qs(where.query)["next"][0]
    assert wanted == f"{doors.guarded_address}/runs?view=all&x=a%20b"
    with httpx.Client(base_url=doors.dashboard_address) as dashboard:
        form = dashboard.get(answer.headers["location"])
        assert f"form-action 'self' {doors.guarded_address};" in form.headers["content-security-policy"]
        signed_in = dashboard.post("/sign-in", data={"name": "otto", "password": PASSWORDS["otto"], "next": wanted})
        assert signed_in.headers["location"] == wanted
        assert dashboard.get(wanted, headers={"Accept": "text/html"}).status_code == 200, "the cookie counts here too"
        port = doors.settings.dagster_port
        for elsewhere in (
            f"http://evil.example:{port}/",
            f"{doors.guarded_address}@evil.example/",
            f"{doors.guarded_address}.evil.example/",
            f"{doors.guarded_address}0/",
            f"https://127.0.0.1:{port}/",
            f"javascript://127.0.0.1:{port}/%0aalert(1)",
            f"{doors.guarded_address}\\@evil.example/",
            f"http:\\\\127.0.0.1:{port}",
            "http://[",
        ):
            refused = dashboard.get("/sign-in", params={"next": elsewhere})
            assert refused.headers["location"] == "/", elsewhere


def test_a_script_may_send_name_and_password(doors: Doors) -> None:
    with doors.visit() as script:
        script.auth = ("vera", PASSWORDS["vera"])
        assert data_of(ask(script, VERSION))
        assert ask(script, LAUNCH_INLINE).status_code == 403
        script.auth = ("vera", "wrong")
        assert ask(script, VERSION).status_code == 401


def test_a_process_of_ours_is_known_by_what_the_session_key_signed(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = sessions_of(doors.settings), Sessions(b"another key", 60)
    with doors.visit() as process:
        process.headers["Authorization"] = f"Bearer {ours.process_token('demo')}"
        assert data_of(ask(process, VERSION))
        prolonged = ours.process_token("demo").replace(".", ".1", 1)
        monkeypatch.setattr(sessions, "PROCESS_TOKEN_S", -1.0)
        expired = ours.process_token("demo")
        for token in (
            other.process_token("demo"),
            prolonged,
            expired,
            "demo",
            "demo.99999999999.",
            doors.sessions["otto"],
        ):
            process.headers["Authorization"] = f"Bearer {token}"
            assert ask(process, VERSION).status_code == 401, token


def test_the_cookie_reaches_dagster_under_another_host_name_where_a_domain_is_set(doors: Doors) -> None:
    above = doors.settings.model_copy(update={"dashboard_cookie_domain": "ops.example"})
    assert "; Domain=ops.example;" in Authenticator(above).set_cookie(None)
    assert "Domain" not in Authenticator(doors.settings).set_cookie(None)


def test_a_viewer_changes_nothing_and_dagster_greys_out_its_buttons(doors: Doors) -> None:
    permissions = "{ permissions { permission value } }"
    with doors.visit("vera") as vera, doors.visit("otto") as otto:
        both = f"query A {VERSION} {LAUNCH_INLINE.replace('mutation', 'mutation B', 1)}"
        for document in (LAUNCH_INLINE, both, "mutation { setNuxSeen }", "mutation { reloadWorkspace { __typename } }"):
            assert ask(vera, document).status_code == 403
        assert ask(vera, LAUNCH, {"params": params()}).status_code == 403
        for kind in ("materialization", "check", "observation"):
            assert vera.post(f"/report_asset_{kind}/numbers", json={"partition": "7"}).status_code == 403
        assert not any(one["value"] for one in data_of(ask(vera, permissions))["permissions"])
        allowed = {one["permission"] for one in data_of(ask(otto, permissions))["permissions"] if one["value"]}
        assert {"launch_pipeline_execution", "wipe_assets", "edit_sensor"} <= allowed


def test_every_route_of_dagster_is_known_with_what_it_needs(doors: Doors) -> None:
    """A new version of Dagster with a new route fails here: say in routes.py what it needs."""
    from clientmgr_dashboard.dagster_ui.application import RecordedWebserver

    server = RecordedWebserver.__new__(RecordedWebserver)
    server._app_path_prefix = ""
    found = server.build_routes()  # type: ignore[no-untyped-call]
    static = [one for one in found if isinstance(one, Mount) or one.name.endswith("_static")]
    named = [one for one in found if one not in static]
    assert {one.path for one in named} == set(ROUTES)
    assert [one.path for one in named if isinstance(one, WebSocketRoute)] == ["/graphql"]
    posts = {one.path for one in named if isinstance(one, Route) and "POST" in (one.methods or ())}
    assert posts == {path for path, needs in ROUTES.items() if needs in {Needs.OPERATION, Needs.OPERATOR}}
    assert all(needs_of_change(path.replace("{asset_key:path}", "a")) for path in posts)
    assert needs_of_change("/new_in_dagster_2") is None
    with doors.visit("otto") as otto:
        for path in ("/server_info", "/new_in_dagster_2", "/", "/graphql/", "/runs"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                assert otto.request(method, path, json={}).status_code == 405, (method, path)


def test_answers_may_not_be_framed_or_sniffed_or_embedded_elsewhere(doors: Doors) -> None:
    with doors.visit("otto") as otto:
        page = otto.get("/runs", headers={"Accept": "text/html"})
        for answer in (page, ask(otto, VERSION), otto.get("/favicon.svg")):
            assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "'strict-dynamic'" in page.headers["content-security-policy"], "Dagster's own policy stays"


def test_it_has_the_dashboard_s_certificate_and_our_own_calls_trust_it(doors: Doors, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = with_tls(doors.settings, certificate, key).model_copy(update={"dagster_port": free_port()})
    with served(settings, doors.workspace) as address:
        assert address == ui_url(settings)
        assert wait_for_ui(settings, threading.Event())
        assert DagsterRuns(settings, "test").partitions("numbers") == ["7", "8", "9"]
        with pytest.raises(httpx.ConnectError):
            httpx.get(address)


def test_on_a_public_address_it_refuses_to_start_without_users() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::", "dagster.example", ""):  # noqa: S104  # compared, not listened on
        with pytest.raises(SettingsError, match="DAGSTER_HOST"):
            ensure_dagster_is_not_open_to_others(load_settings(dagster_host=host))
        ensure_dagster_is_not_open_to_others(load_settings(dagster_host=host, dashboard_users_file="users"))
    ensure_dagster_is_not_open_to_others(load_settings())
