"""The pages in a real browser: things are found, drawn and done by clicking, on a phone too, and nothing stored runs.

DASHBOARD_SCREENSHOTS=FOLDER keeps what they looked like, in light and dark and at a phone's width.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientmgr.contracts import topics
from tests.browser import HOW_TO_GET_IT, Browser, browsing, find_chromium
from tests.dashboard.house import BUSY, CONTACT, QUIET, SECRET, House
from tests.dashboard.test_pages import ODD, PAGES, PARTS
from tests.streaming.rig import event
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_GET_IT)

DEVICE = f"/devices/one?customerId={BUSY}&applicationCode=A&clientId=c1&channel=push"
PHOTOGRAPHED = {
    "overview": "/",
    "process": "/processes/writer",
    "tenants": "/tenants",
    "tenant": f"/tenants/{BUSY}",
    "device": DEVICE,
    "search": "/search",
    "devices": f"/devices?customerId={BUSY}&contactId={CONTACT}",
    "topics": "/messages",
    "topic": f"/messages/topic?topic={topics.WRITER}",
    "pause": f"/messages/pause?subscription={topics.WRITER}",
    "failures": "/failures?state=any",
    "failure": "/failures/d1",
    "failure-edit": "/failures/d1/edit",
    "flippers": "/switches",
    "audit": "/audit",
}
LOADED = "document.readyState === 'complete' && location.href !== 'about:blank'"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Text and background of an element, as luminance contrast (WCAG).
CONTRAST = """
(() => {
  const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const background = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const element of document.querySelectorAll("main *, header *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest("svg") || element.disabled || !element.offsetParent) continue;
    if (element.closest(".unseen, .skip")) continue;
    const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(background(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < worst[0]) worst = [contrast, element.outerHTML.slice(0, 120)];
  }
  return worst;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def visit(browser: Browser, url: str, **options: bool | int) -> None:
    """Open a page and wait until it is there."""
    browser.open("about:blank")
    browser.open(url, **options)  # type: ignore[arg-type]
    eventually(lambda: browser.evaluate(LOADED), f"{url} is loaded")


def keep_photograph(browser: Browser, name: str) -> None:
    if folder := os.environ.get("DASHBOARD_SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"{name}.png", whole_page=True)


def test_nothing_that_is_stored_runs_and_the_policy_refuses_nothing_of_ours(browser: Browser, address: str) -> None:
    for path in [*PAGES, f"/devices?customerId={BUSY}&clientId={ODD}"]:
        if path in {"/live", *PARTS}:
            continue  # the broadcast is not running here; the others are parts of a page
        visit(browser, f"{address}{path}")
        assert browser.evaluate("window.hacked") is None, path
        assert browser.evaluate("document.querySelectorAll('main script, main img').length") == 0, path
    assert browser.errors == []


def test_a_tenant_is_found_and_its_chart_drawn(browser: Browser, address: str) -> None:
    visit(browser, f"{address}/tenants")
    browser.fill("input[name=search]", str(BUSY))
    browser.click("Find")
    eventually(lambda: f"search={BUSY}" in browser.evaluate("location.search"), "the search is sent")
    browser.click(str(BUSY))
    browser.wait_for(f"Tenant {BUSY}", "Devices by platform")
    drawn = browser.evaluate("""(() => {
        const areas = [...document.querySelectorAll('.chart polygon')].map((area) => area.getBoundingClientRect());
        return areas.filter((area) => area.width > 300 && area.height > 5).length;
    })()""")
    assert drawn >= 2, "areas of some size"
    colours = browser.evaluate(
        "new Set([...document.querySelectorAll('.chart polygon')].map((each) => getComputedStyle(each).fill)).size"
    )
    assert colours == 3


def test_an_empty_page_of_failures_offers_nothing_to_be_done_with_all(browser: Browser, address: str) -> None:
    visit(browser, f"{address}/failures?contains=nothing-has-this")
    browser.wait_for("Nothing matches")
    assert browser.evaluate("getComputedStyle(document.querySelector('.actions.sticky')).display") == "none"


def test_a_failed_message_is_found_mended_replayed_and_seen_to_arrive(
    browser: Browser, address: str, house: House
) -> None:
    body = {**event(client="x", customer=BUSY), "clientId": 31337}
    house.publish_and_write(json.dumps(body).encode())
    visit(browser, f"{address}/failures?customerId={BUSY}&errorClass=InvalidMessageError&contains=31337")
    assert browser.evaluate("document.querySelector('button[value=replay]').disabled"), "nothing is chosen yet"
    offered = "getComputedStyle(document.querySelector('button[value=replay-all]').parentElement).display"
    assert browser.evaluate(offered) != "none"
    browser.evaluate("document.querySelector('input[name=ids]').click()")
    browser.wait_for("1 chosen", "waits while you choose")
    browser.click("Replay chosen")
    browser.wait_for("Replay 1 message?", topics.WRITER)
    browser.click("Yes, replay 1")
    browser.wait_for("under way")
    browser.evaluate("window.notReloaded = true")
    house.publish_and_write()
    browser.wait_for("died again", "clientId")
    assert browser.evaluate("window.notReloaded") is True
    browser.click("e")  # the message that it became
    browser.wait_for("Edit and replay")
    browser.click("Edit and replay")
    browser.wait_for("Check and replay")
    browser.fill("textarea", json.dumps({**body, "clientId": ""}))
    browser.click("Check and replay")
    browser.wait_for("Not published. clientId")
    browser.fill("textarea", json.dumps({**body, "clientId": "clicked"}))
    browser.click("Check and replay")
    browser.wait_for("edited: clientId")
    house.publish_and_write()
    browser.wait_for("done", "did not come back")
    assert "clicked" in house.devices()


def test_a_flipper_is_turned_by_clicking_and_a_token_revealed(browser: Browser, address: str, house: House) -> None:
    visit(browser, f"{address}/switches")
    browser.fill("input[name=customerId][required]", str(QUIET))
    browser.click("Set")
    browser.wait_for("Changed. Daemons follow within seconds.")
    assert house.audited("flipper.set")[-1][:2] == (QUIET, "dashboard:local")
    visit(browser, f"{address}{DEVICE}")
    assert SECRET not in browser.text()
    browser.click("Reveal the token")
    browser.wait_for(SECRET)


def test_a_key_on_any_page_leads_to_the_story_of_a_device(browser: Browser, address: str) -> None:
    visit(browser, f"{address}/audit")
    browser.press("/")
    assert browser.evaluate("document.activeElement.name") == "text"
    browser.press("Escape")
    assert browser.evaluate("document.activeElement.id") == "main"
    browser.press("/c1")
    browser.press("Enter")
    browser.wait_for("searched in", "application A")
    browser.click("c1")
    browser.wait_for("Its story", "linked to a contact", "client-manager.writer, offset")


def test_the_charts_of_the_day_can_be_read_as_a_table_that_stays_open(
    browser: Browser, address: str, house: House
) -> None:
    house.query(
        "INSERT INTO clientmgr.samples"
        " (at, events, sends, errors, dead_letters, last_letter, unread, oldest_unread_s)"
        " SELECT now() - m * interval '1 minute', 60000 - 60 * m, 600, 0, 0, 0, 0, m"
        " FROM generate_series(0, 1000) AS m ON CONFLICT DO NOTHING"
    )

    def drawn() -> int:
        visit(browser, f"{address}/")
        wide = "filter((each) => each.getBoundingClientRect().width > 300)"
        return int(browser.evaluate(f"[...document.querySelectorAll('.charts svg')].{wide}.length"))

    eventually(lambda: drawn() == 4, "the charts are drawn")
    browser.evaluate("const folded = document.querySelector('details').cloneNode(true)")
    browser.evaluate("document.querySelector('summary').click()")
    browser.wait_for("Events a minute")
    browser.evaluate("patch(document.querySelector('details'), folded)")
    assert "Events a minute" in browser.text(), "an update folds nothing up"


def test_a_flipper_for_all_is_turned_by_keyboard_after_it_said_what_it_changes(
    browser: Browser, address: str, house: House
) -> None:
    visit(browser, f"{address}/switches")
    browser.evaluate("document.querySelector('.switch button').focus()")
    browser.press("Enter")
    browser.wait_for("for all tenants?", "It changes ", "Yes, turn off")
    assert house.audited("flipper.set")[-1][0] != 0, "nothing is done yet"
    keep_photograph(browser, "confirm-flip")
    browser.evaluate("document.querySelector('main form button').focus()")
    browser.press("Enter")
    browser.wait_for("Changed. Daemons follow within seconds.")
    assert house.audited("flipper.set")[-1][:3] == (0, "dashboard:local", "off")


def test_a_contact_that_is_no_number_is_refused_in_the_form_with_the_field_in_focus(
    browser: Browser, address: str
) -> None:
    visit(browser, f"{address}/devices")
    browser.fill("main input[name=customerId]", str(BUSY))
    browser.fill("main input[name=wanted]", "abc")
    browser.click("Find")
    browser.wait_for("Expected a contact's id, which is a number")
    focused = "[document.activeElement.name, document.activeElement.value, document.activeElement.ariaInvalid]"
    # A browser obeys `autofocus` when it has drawn the page.
    eventually(lambda: browser.evaluate(focused) == ["wanted", "abc", "true"], "the field has the focus")
    assert browser.evaluate("document.querySelector('main input[name=customerId]').value") == str(BUSY)
    assert browser.evaluate(OVERFLOW) == 0
    keep_photograph(browser, "refused")


def test_the_overview_stays_current_without_reloading(browser: Browser, address: str, house: House) -> None:
    visit(browser, f"{address}/")
    browser.wait_for("live")
    browser.evaluate("window.notReloaded = true; document.querySelector('a[href*=failures]').focus()")
    before = browser.evaluate("[...document.querySelectorAll('.tile')].map((tile) => tile.innerText).join()")
    house.dead_letter(b"{}")
    changed = "[...document.querySelectorAll('.tile')].map((tile) => tile.innerText).join()"
    eventually(lambda: browser.evaluate(changed) != before, "the numbers change")
    assert browser.evaluate("window.notReloaded") is True
    assert browser.evaluate("document.activeElement.tagName") == "A", "the focus stays where it was"


def test_the_colours_can_be_chosen_and_are_kept(browser: Browser, address: str) -> None:
    visit(browser, f"{address}/switches")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.evaluate(colour)
    browser.evaluate("document.querySelector('[data-theme-toggle]').click()")
    assert browser.evaluate(colour) != light
    visit(browser, f"{address}/audit")
    assert browser.evaluate(colour) != light
    browser.evaluate("localStorage.clear()")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_can_be_read_and_fit_a_phone(browser: Browser, address: str, tmp_path: Path, dark: bool) -> None:
    folder = Path(os.environ.get("DASHBOARD_SCREENSHOTS") or tmp_path)
    keep = "DASHBOARD_SCREENSHOTS" in os.environ
    for name, path in PHOTOGRAPHED.items():
        visit(browser, f"{address}{path}", width=390, height=844, mobile=True, dark=dark)
        assert browser.evaluate(OVERFLOW) == 0, f"{path} is wider than a phone"
        if keep:
            browser.screenshot(folder / f"{name}-phone-{'dark' if dark else 'light'}.png", whole_page=True)
        visit(browser, f"{address}{path}", width=1280, height=900, dark=dark)
        contrast, where = browser.evaluate(CONTRAST)
        assert contrast >= 4.5, (path, where)
        if keep:
            browser.screenshot(folder / f"{name}-{'dark' if dark else 'light'}.png", whole_page=True)
