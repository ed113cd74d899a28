"""A real browser on another site's page, with an operator signed in: whatever it tries, Dagster starts nothing."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser import HOW_TO_GET_IT, Browser, browsing, find_chromium
from tests.dagster.doors import LAUNCH_INLINE, Doors
from tests.dashboard.house import PASSWORDS
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_GET_IT)

_PAGE = """<!doctype html><body><script>
const document_ = %(launch)s, target = %(target)s, body = JSON.stringify({query: document_});
window.tried = {};
const note = (name, promise) => promise.then(() => "sent", (error) => "refused: " + error)
    .then((outcome) => { window.tried[name] = outcome });
const url = `${target}/graphql?query=${encodeURIComponent(document_)}`;
const element = (name, tag, attribute) => note(name, new Promise((resolve) => {
  const made = document.createElement(tag);
  made.onload = made.onerror = resolve;
  made[attribute] = url;
  document.body.append(made);
}));
const form = (name, enctype, fields, action) => note(name, new Promise((resolve) => {
  const frame = document.createElement("iframe");
  frame.name = name;
  document.body.append(frame);
  const made = document.createElement("form");
  Object.assign(made, {method: "post", enctype, action, target: name});
  for (const [key, value] of Object.entries(fields)) {
    const input = document.createElement("textarea");
    Object.assign(input, {name: key, value});
    made.append(input);
  }
  document.body.append(made);
  frame.onload = resolve;
  made.submit();
}));
const socket = (name, protocols) => note(name, new Promise((resolve, reject) => {
  const made = new WebSocket(target.replace("http", "ws") + "/graphql", protocols);
  made.onopen = () => {
    made.send(JSON.stringify({type: "connection_init"}));
    made.send(JSON.stringify({type: "start", id: "1", payload: {query: document_}}));
    resolve();
  };
  made.onerror = () => reject("no socket");
}));
const options = {credentials: "include", method: "POST"};
Promise.all([
  element("img", "img", "src"),
  element("script", "script", "src"),
  element("frame", "iframe", "src"),
  form("urlencoded", "application/x-www-form-urlencoded", {query: document_}, url),
  form("plain", "text/plain", {[body.slice(0, -1) + ', "x": "']: '"}'}, target + "/graphql"),
  form("multipart", "multipart/form-data", {query: document_}, url),
  note("fetch get", fetch(url, {credentials: "include", mode: "no-cors"})),
  note("fetch plain", fetch(target + "/graphql", {...options, body, mode: "no-cors"})),
  note("fetch none", fetch(url, {...options, mode: "no-cors"})),
  note("fetch json", fetch(target + "/graphql", {...options, body, headers: {"Content-Type": "application/json"}})),
  note("beacon", Promise.resolve(navigator.sendBeacon(url, body))),
  socket("socket", "graphql-ws"),
]).then(() => { window.done = true });
</script>"""
WAYS = 12


@contextmanager
def another_site(target: str) -> Iterator[int]:
    """A page that attacks `target`, on a port of its own."""
    page = (_PAGE % {"launch": json.dumps(LAUNCH_INLINE), "target": json.dumps(target)}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def browser(doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """With an operator signed in, as they do it: they open Dagster and come back to it from the dashboard."""
    folder: Path = tmp_path_factory.mktemp("browser")
    with browsing(folder) as browser:
        browser.open(f"{doors.guarded_address}/runs")
        browser.wait_for("Sign in")
        browser.fill("input[name=name]", "otto")
        browser.fill("input[name=password]", PASSWORDS["otto"])
        browser.evaluate("document.querySelector('form').requestSubmit()")
        eventually(
            lambda: browser.evaluate("location.href").startswith(f"{doors.guarded_address}/runs"),
            "the browser is back in Dagster",
        )
        yield browser
        browser.screenshot(folder / "page.png")


def test_our_own_page_may_launch_as_who_is_signed_in(doors: Doors, browser: Browser) -> None:
    before = len(doors.runs())
    body = json.dumps(json.dumps({"query": LAUNCH_INLINE}))
    browser.evaluate(
        f"fetch('/graphql', {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: {body}}})"
        ".then((answer) => { window.answered = answer.status })"
    )
    eventually(lambda: browser.evaluate("window.answered"), "Dagster answers")
    assert browser.evaluate("window.answered") == 200
    assert len(doors.runs()) == before + 1
    assert doors.runs()[0].tags["clientmgr/launched_by"] == "dagster:otto"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_another_site_s_page_launches_nothing(doors: Doors, browser: Browser, name: str) -> None:
    """127.0.0.1 with another port is the same site to a browser: it sends the session's cookie along."""
    before, recorded = len(doors.runs()), len(doors.audited("dagster.launchRun"))
    for target in (doors.guarded_address, doors.open_address):
        with another_site(target) as port:
            browser.open(f"http://{name}:{port}/?{quote(target)}")
            is_done = f"location.port === '{port}' && window.done === true"
            eventually(partial(browser.evaluate, is_done), "the page has tried everything")
            tried = browser.evaluate("window.tried")
            assert len(tried) == WAYS, tried
            assert tried["socket"].startswith("refused"), tried
            assert tried["fetch json"].startswith("refused"), tried
    assert len(doors.runs()) == before
    assert len(doors.audited("dagster.launchRun")) == recorded
