"""Every page, as HTTP delivers it: it is there, nothing stored becomes markup in it, and nobody else's code may run."""

import re
from urllib.parse import quote

import pytest

from tests.dashboard.house import BUSY, CONTACT, MISCHIEF, QUIET, SECRET, House, Visit

ODD = quote(MISCHIEF, safe="")
PAGES = [
    "/",
    "/overview/live",
    "/overview/trend",
    "/processes/writer",
    "/tenants",
    "/tenants?search=100&sort=customerId&order=asc&show=out-of-sync&status=any&page=1",
    f"/tenants/{BUSY}",
    f"/tenants/{BUSY}?days=365&verify=1",
    f"/tenants/{QUIET}",
    "/audit",
    "/audit?verify=1",
    f"/audit?actor={ODD}&action=tenant&customerId={BUSY}&since=2026-01-01T00:00&until=2999-01-01T00:00",
    "/devices",
    f"/devices?customerId={BUSY}&contactId={CONTACT}",
    f"/devices?customerId={BUSY}&clientId={ODD}",
    f"/devices/one?customerId={BUSY}&applicationCode={ODD}&clientId={ODD}",
    f"/devices/one?customerId={BUSY}&applicationCode=A&clientId=c1&channel=push",
    "/search",
    "/contacts",
    f"/contacts?customerId={BUSY}&contactId={CONTACT}",
    "/messages",
    "/messages/topic?topic=client-manager.writer",
    f"/messages/topic?topic=client-manager.writer&tenant={ODD}&until=2026-01-01T00:00",
    "/messages/pause?subscription=client-manager.writer",
    "/failures",
    "/failures/live?state=any",
    f"/failures?state=any&contains={ODD}",
    f"/failures?topic={ODD}&subscription={ODD}&errorClass={ODD}&since=2026-01-01T00:00",
    "/failures?topic=client-manager.writer-errors",
    "/failures?state=waiting",
    "/failures/d1",
    "/failures/d1/edit",
    "/switches",
    "/migration",
    "/placement",
    "/applications",
    f"/applications?customerId={BUSY}&applicationCode={ODD}",
    "/intake-keys",
    "/live",
]
PARTS = ("/overview/live", "/overview/trend")
"""No pages of their own."""
# What a browser would run, or load from elsewhere.
LIVE_CODE = re.compile(r"<script>|onerror=\"window|javascript:|\sstyle=|\son[a-z]+=\"(?!window)", re.IGNORECASE)


@pytest.mark.parametrize("path", PAGES)
def test_nothing_that_is_stored_becomes_markup(visit: Visit, path: str) -> None:
    page = visit.see(path)
    unescaped = page.replace("&lt;script&gt;", "").replace("onerror=&#34;window", "")
    assert LIVE_CODE.search(unescaped) is None, LIVE_CODE.search(unescaped)
    assert "49</" not in page, "a template ran what was stored"
    assert page.count("<script") == (0 if path in PARTS or "/failures/live" in path else 2)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"/devices?customerId={BUSY}&clientId={ODD}", 4),
        (f"/devices/one?customerId={BUSY}&applicationCode={ODD}&clientId={ODD}", 8),
        ("/failures", 4),
        ("/failures/d1", 3),
        ("/switches", 3),
        ("/applications", 4),
        (f"/tenants/{BUSY}", 5),
    ],
)
def test_mischief_is_shown_as_the_text_that_it_is(visit: Visit, path: str, shown: int) -> None:
    assert visit.see(path).count("&lt;script&gt;window.hacked=1&lt;/script&gt;") >= shown


def test_what_a_browser_may_do_is_said_on_every_answer(visit: Visit) -> None:
    for path in ("/", "/tenants", "/nowhere", "/static/dashboard.js", "/api/v1/overview", "/api/v1/nowhere"):
        headers = visit.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_only_the_live_page_may_show_a_frame_and_only_the_broadcasts(visit: Visit, house: House) -> None:
    origin = f"http://127.0.0.1:{house.settings.live_ws_port}"
    answer = visit.get("/live")
    assert answer.headers["content-security-policy"].endswith(f"frame-src {origin}")
    assert f'src="{origin}/live#token=' in answer.text
    assert f"does not answer at {origin}" in answer.text, "nobody is there, and the page says so"
    assert "frame-src" not in visit.get("/").headers["content-security-policy"]


@pytest.mark.parametrize("path", [page for page in PAGES if page not in PARTS and "/failures/live" not in page])
def test_pages_have_landmarks_and_named_tables_and_fields(visit: Visit, path: str) -> None:
    page = visit.see(path)
    assert '<html lang="en">' in page
    assert page.count('<main id="main"') == 1
    assert page.count("<h1") == 1
    assert page.count("<table") == page.count("<caption")
    assert not re.search(r"<th(?![^>]*scope=)[ >]", page)
    for field in re.findall(r"<(?:input|select)[^>]*>", page):
        if 'type="hidden"' not in field and "aria-label" not in field:
            before = page[: page.index(field)]
            assert before.rfind("<label") > before.rfind("</label>"), field


def test_a_token_is_in_no_page_that_nobody_asked_to_reveal(visit: Visit) -> None:
    for path in PAGES:
        assert SECRET not in visit.see(path), path


def test_a_page_that_is_not_there_says_so(visit: Visit) -> None:
    assert "There is no such page" in visit.see("/nowhere", status=404)
    assert "customer 999 was never activated" in visit.see("/tenants/999", status=404)
    assert "there is no failed message d99999999" in visit.see("/failures/d99999999", status=404)
    assert visit.get("/messages/dead-letters?state=any").headers["location"] == "/failures?state=any"
    assert visit.get("/messages/dead-letters/7").headers["location"] == "/failures/d7"
    assert visit.get("/messages/errors?topic=a&state=handled").headers["location"] == "/failures?topic=a&state=any"
    assert "It must be a whole number" in visit.see("/tenants?page=x", status=400)
