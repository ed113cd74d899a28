"""Who is let in, and what they may do: loopback, sign-in, roles, sessions, forms of other sites."""

import contextlib
import http.client
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from clientmgr.base.errors import SettingsError
from clientmgr.base.exposure import is_loopback
from clientmgr.base.private_files import write_private
from clientmgr.base.settings import load_settings
from clientmgr_dashboard.access import attempts
from clientmgr_dashboard.access.authentication import COOKIE
from clientmgr_dashboard.access.exposure import ensure_not_open_to_others
from clientmgr_dashboard.access.sessions import Sessions
from clientmgr_dashboard.access.users import Role, Users, is_password, user_line
from clientmgr_dashboard.pages import find_pages
from tests.cli.calling import Cli
from tests.dashboard.house import BUSY, PASSWORDS, SECRET, House, Visit, serving, write_users
from tests.streaming.processes import COMMAND, worker
from tests.waiting import eventually

EVERYWHERE = "0.0.0.0"  # noqa: S104  # what is to be refused
OPERATIONS = [operation for page in find_pages() for operation in page.operations]
FLIP = {"name": "USE_POSTGRES_DEVICE_MAPPER", "state": "on", "customerId": str(BUSY)}


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.1.5", "example.com", ""])
def test_an_address_that_others_reach_is_refused_without_users(host: str) -> None:
    with pytest.raises(SettingsError, match=r"DASHBOARD_HOST: .* set DASHBOARD_USERS_FILE"):
        ensure_not_open_to_others(load_settings(dashboard_host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machines_own_addresses_need_no_users(host: str) -> None:
    assert is_loopback(host)
    ensure_not_open_to_others(load_settings(dashboard_host=host))


def test_the_command_refuses_to_start_on_a_public_address_and_names_the_setting(house: House) -> None:
    environment = {**house.settings.environment(), "DASHBOARD_HOST": EVERYWHERE, "PATH": ""}
    ended = subprocess.run([*COMMAND, "dashboard"], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "DASHBOARD_HOST: 0.0.0.0 can be reached by others" in ended.stderr


def test_the_command_serves_until_it_is_told_to_stop(house: House, tmp_path: Path) -> None:
    with worker(house.settings, tmp_path, "dashboard") as process:
        process.wait_until_started()
        address = next(word for word in process.log.split('"') if word.startswith("http://127.0.0.1:"))
        assert httpx.get(f"{address}/healthz").text == "ok"
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert "daemon stopped" in process.log


def test_where_nobody_signs_in_only_this_machines_names_are_answered(visit: Visit) -> None:
    assert visit.get("/", headers={"Host": "evil.example"}).status_code == 421
    assert visit.get("/api/v1/overview", headers={"Host": "evil.example"}).status_code == 421
    port = visit.base_url.port
    assert visit.get("/", headers={"Host": f"localhost:{port}"}).status_code == 200
    twice = http.client.HTTPConnection("localhost", port or 0, timeout=60)
    twice.putrequest("GET", "/", skip_host=True)
    for name in (f"localhost:{port}", "evil.example"):
        twice.putheader("Host", name)
    twice.endheaders()
    with contextlib.closing(twice):
        assert twice.getresponse().status == 421


def test_a_stranger_is_shown_the_sign_in_and_nothing_else(stranger: Visit) -> None:
    answer = stranger.get("/tenants?page=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=/tenants%3Fpage%3D2")
    assert stranger.get("/static/dashboard.css").status_code == 200
    assert stranger.get("/healthz").status_code == 200
    assert stranger.post("/switches/flippers", data=FLIP).status_code == 401
    for operation in OPERATIONS:
        path = "/api/v1" + operation.path.replace("{customerId}", "1").replace("{id}", "1")
        answer = stranger.request(operation.method, path)
        assert answer.status_code == 401, operation
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_wrong_password_is_refused_and_after_some_nobody_is_asked_any_more(
    stranger: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "PER_PAIR", 2)

    def attempt(name: str) -> httpx.Response:
        return stranger.post("/sign-in", data={"name": name, "password": "wrong"})

    answers = [attempt("mallory").status_code for _ in range(3)]
    assert answers == [401, 401, 429]
    assert COOKIE not in stranger.cookies


def test_after_signing_in_one_is_where_one_wanted_to_be(stranger: Visit) -> None:
    form = {"name": "vera", "password": PASSWORDS["vera"], "next": "/tenants"}
    answer = stranger.post("/sign-in", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/tenants")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly; SameSite=Lax" in cookie
    assert "vera" in stranger.see("/tenants")


@pytest.mark.parametrize("wanted", ["//evil.example", "/\\evil.example", "https://evil.example", "evil"])
def test_signing_in_leads_nowhere_else(stranger: Visit, wanted: str) -> None:
    form = {"name": "vera", "password": PASSWORDS["vera"], "next": wanted}
    assert stranger.post("/sign-in", data=form).headers["location"] == "/"


def test_whoever_is_signed_in_is_not_asked_again(viewer: Visit) -> None:
    for wanted, led_to in (("/tenants", "/tenants"), ("//evil.example", "/")):
        answer = viewer.get("/sign-in", params={"next": wanted})
        assert (answer.status_code, answer.headers["location"]) == (303, led_to)


def test_signing_in_and_out_is_audited(house: House, stranger: Visit) -> None:
    stranger.post("/sign-in", data={"name": "vera", "password": PASSWORDS["vera"]})
    assert house.audited("dashboard.sign-in")[-1][1] == "dashboard:vera"
    assert stranger.submit("/sign-out", {}).status_code == 303
    assert house.audited("dashboard.sign-out")[-1][1] == "dashboard:vera"
    assert stranger.get("/").status_code == 303


def test_a_viewer_sees_everything_and_changes_nothing(house: House, viewer: Visit) -> None:
    letter = house.dead_letter(b"{}")
    before = house.query("SELECT count(*) FROM clientmgr.audit_log")
    page = viewer.see("/failures")
    assert "Replay chosen" not in page
    assert "Edit and replay" not in viewer.see(f"/failures/d{letter}")
    assert "needs the role operator" in viewer.see(f"/failures/d{letter}/edit", status=403)
    token = viewer.token
    forms: list[tuple[str, dict[str, Any]]] = [
        ("/failures/confirm", {"action": "drop", "ids": f"d{letter}"}),
        ("/failures/drop", {"ids": f"d{letter}"}),
        ("/failures/replay", {"ids": f"d{letter}"}),
        (f"/failures/d{letter}/reveal", {}),
        (f"/failures/d{letter}/edit", {"text": '{"a": 1}'}),
        ("/switches/flippers", FLIP),
        ("/applications/configure", {"customerId": BUSY, "applicationCode": "A", "appleTopic": "com.acme"}),
        ("/applications/remove", {"customerId": BUSY, "applicationCode": "A"}),
        ("/switches/exclusions", {"customerId": BUSY, "reason": "x"}),
        ("/devices/reveal", {"customerId": BUSY, "applicationCode": "A", "clientId": "c1"}),
    ]
    for path, fields in forms:
        answer = viewer.post(path, data={"csrf_token": token, **fields})
        assert answer.status_code == 403, path
        assert "needs the role operator; yours is viewer" in answer.text
    headers = {"X-CSRF-Token": token}
    for operation in OPERATIONS:
        if operation.needs is Role.OPERATOR:
            answer = viewer.post(f"/api/v1{operation.path}", json={}, headers=headers)
            assert answer.status_code == 403, operation
    assert house.query("SELECT count(*) FROM clientmgr.audit_log") == before
    assert house.query("SELECT count(*) FROM clientmgr.dead_letter_queue WHERE id = %s", letter) == [(1,)]


@pytest.mark.parametrize("where", ["message", "error"])
def test_a_viewer_can_not_find_out_a_masked_token_by_searching_for_its_parts(
    house: House, viewer: Visit, operator: Visit, where: str
) -> None:
    in_message, in_error = (SECRET, "") if where == "message" else ("", SECRET)
    letter = house.dead_letter(f'{{"pushToken": "{in_message}"}}'.encode(), error=f"refused: pushToken='{in_error}'")

    def search(visit: Visit) -> httpx.Response:
        return visit.get("/api/v1/failures", params={"contains": SECRET[:-3], "limit": 500})

    def count(visit: Visit) -> httpx.Response:
        return visit.post(
            "/api/v1/failures/preview", json={"contains": SECRET[:-3]}, headers={"X-CSRF-Token": visit.token}
        )

    assert f"d{letter}" in [row["ref"] for row in search(operator).json()["items"]]
    assert count(operator).json()["messages"] >= 1
    for answer in (search(viewer), count(viewer), viewer.get("/failures", params={"contains": SECRET})):
        assert answer.status_code == 403
        assert "needs the role operator" in answer.text
    assert "error contains" in operator.see("/failures")
    assert "error contains" not in viewer.see("/failures")


def test_what_an_operator_does_is_audited_under_their_name(house: House, operator: Visit) -> None:
    assert operator.submit("/switches/flippers", FLIP).status_code == 303
    assert house.audited("flipper.set")[-1][:3] == (BUSY, "dashboard:otto", "on")
    assert operator.submit("/switches/flippers", {**FLIP, "state": "unset"}).status_code == 303


@pytest.mark.parametrize("token", ["", "x", "é"])
def test_a_form_without_the_sessions_token_is_refused(operator: Visit, token: str) -> None:
    answer = operator.post("/switches/flippers", data={**FLIP, "csrf_token": token})
    assert answer.status_code == 403
    assert "was not ours" in answer.text


def test_another_sessions_token_does_not_count(operator: Visit, viewer: Visit, visit: Visit) -> None:
    for other in (viewer, visit):
        assert operator.post("/switches/flippers", data={**FLIP, "csrf_token": other.token}).status_code == 403


def test_at_this_machine_a_form_without_the_token_is_refused_too(visit: Visit) -> None:
    assert visit.post("/switches/flippers", data=FLIP).status_code == 403
    visit.see("/")
    assert visit.post("/switches/flippers", data=FLIP).status_code == 403
    assert visit.post("/api/v1/flippers", json={"name": FLIP["name"]}).status_code == 403


def test_at_this_machine_a_cookie_of_another_dashboard_gives_way_to_ours(visit: Visit) -> None:
    visit.cookies.set(COOKIE, "of.another", domain="127.0.0.1")
    visit.see("/")
    assert visit.submit("/switches/flippers", {**FLIP, "state": "unset"}).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_another_sites_page_can_not_send_our_forms(operator: Visit, headers: dict[str, str]) -> None:
    answer = operator.submit("/switches/flippers", FLIP, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text


def test_our_own_page_can(operator: Visit) -> None:
    headers = {"Origin": str(operator.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert operator.submit("/switches/flippers", {**FLIP, "state": "unset"}, headers=headers).status_code == 303


def test_a_form_that_is_too_large_is_refused(operator: Visit) -> None:
    assert operator.post("/devices", content=b"x" * 1_100_000).status_code == 413


def test_a_script_may_send_name_and_password_with_each_request(guarded_address: str) -> None:
    url = f"{guarded_address}/api/v1/session"
    assert httpx.get(url, auth=("otto", PASSWORDS["otto"])).json() == {
        "name": "otto",
        "role": "operator",
        "csrfToken": None,
    }
    assert httpx.get(url, auth=("otto", "wrong-password")).status_code == 401
    assert "basic" not in httpx.get(url).headers["www-authenticate"].lower()
    # Pages are for people: there a browser would send it without being asked.
    assert httpx.get(f"{guarded_address}/", auth=("otto", PASSWORDS["otto"])).status_code == 303


def test_a_cookie_that_was_changed_or_made_with_another_key_does_not_count(
    operator: Visit, guarded_address: str
) -> None:
    cookie = operator.cookies[COOKIE]
    forged = Sessions(b"another key", 3600)
    for value in (cookie[:-2] + "AA", cookie.replace(".", "x.", 1), "", ".", "a.b", forged.cookie(forged.start(None))):
        assert httpx.get(f"{guarded_address}/", cookies={COOKIE: value}).status_code == 303, value


def test_another_password_or_role_ends_a_users_sessions(house: House, tmp_path: Path) -> None:
    file = write_users(tmp_path)
    settings = house.settings.model_copy(update={"dashboard_users_file": str(file)})
    with serving(settings) as address, Visit(base_url=address) as visit:
        visit.post("/sign-in", data={"name": "otto", "password": PASSWORDS["otto"]})
        visit.see("/tenants")
        lines = file.read_text().splitlines()
        file.write_text("\n".join(line.replace(":operator:", ":viewer:") for line in lines))
        eventually(lambda: visit.get("/tenants").status_code == 303, "the session is over")
        file.write_text("nonsense")
        assert visit.get("/tenants").status_code == 503


def test_a_users_line_holds_no_password_and_knows_the_right_one(tmp_path: Path) -> None:
    made = Cli({}).ok(
        "dashboard", "user", "anna@example.com", "--role", "operator", "--password-stdin", stdin=b"pass word 1\n"
    )
    assert "pass word" not in made.out
    file = tmp_path / "users"
    write_private(file, made.out)
    user = Users(file).find("anna@example.com")
    assert user is not None
    assert user.role is Role.OPERATOR
    assert is_password(user, "pass word 1")
    assert not is_password(user, "pass word 2")
    assert not is_password(None, "pass word 1")


@pytest.mark.parametrize(
    "text", ["", "anna", "anna:admin:x", "anna:viewer:plain-password", "anna:viewer:scrypt$0$8$1$AAAAAAAAAAAAAAAA$AAAA"]
)
def test_a_users_file_with_a_wrong_line_is_refused_by_its_number(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    write_private(file, text)
    with pytest.raises(SettingsError, match=r"DASHBOARD_USERS_FILE: .*(line 1|names no user)") as refused:
        Users(file)
    assert "plain-password" not in str(refused.value)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    line = user_line("anna", Role.VIEWER, "long enough")
    write_private(file, f"{line}\n{line}\n")
    with pytest.raises(SettingsError, match="line 2: anna stands there twice"):
        Users(file)


def test_a_users_file_that_others_may_read_is_refused_then_and_later(tmp_path: Path) -> None:
    file = write_users(tmp_path)
    users = Users(file)
    file.chmod(0o644)
    with pytest.raises(SettingsError, match=r"DASHBOARD_USERS_FILE: others may read .*mode 0644.*chmod 600"):
        users.find("otto")
    with pytest.raises(SettingsError, match="DASHBOARD_USERS_FILE: others may read"):
        Users(file)
    file.chmod(0o600)
    assert users.find("otto") is not None
