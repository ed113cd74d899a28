"""A form with something wrong in it stays where it is: filled in as it was, the field marked, in words for people."""

import html
import re
from dataclasses import dataclass

import pytest

from tests.dashboard.house import BUSY, CONTACT, Visit
from tests.dashboard.test_pages import PAGES

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_FIELD = re.compile(r"<(input|select)\b([^>]*)>")
_ATTRIBUTE = re.compile(r'([\w-]+)(?:="([^"]*)")?')


@dataclass(frozen=True)
class Form:
    page: str
    method: str
    action: str
    fields: dict[str, dict[str, str]]
    """The attributes of each field, by its name."""


def forms_of(page: str, text: str) -> list[Form]:
    found = []
    for head, inside in _FORM.findall(text):
        attributes = dict(_ATTRIBUTE.findall(head))
        fields = {}
        for kind, field in _FIELD.findall(inside):
            known = dict(_ATTRIBUTE.findall(field)) | {"kind": kind}
            if known.get("name"):
                fields[known["name"]] = known
        found.append(Form(page, attributes.get("method", "get"), attributes.get("action", ""), fields))
    return found


def is_number(field: dict[str, str]) -> bool:
    return field.get("inputmode") == "numeric" and field.get("type") != "hidden"


def test_every_field_for_a_number_says_so_where_it_gets_something_else(visit: Visit) -> None:
    """All forms of all pages, also those that somebody will add."""
    seen: set[tuple[str, str]] = set()
    for page in PAGES:
        if "/live" in page:
            continue
        for form in forms_of(page, visit.see(page)):
            for name in [name for name, field in form.fields.items() if is_number(field)]:
                if not form.action or (form.action, name) in seen:
                    continue
                seen.add((form.action, name))
                sent = {
                    other: html.unescape(field.get("value", "")) or ("1" if is_number(field) else "x")
                    for other, field in form.fields.items()
                    if field["kind"] == "input" and field.get("type") not in {"checkbox", "datetime-local"}
                } | {name: "abc"}
                sent.pop("csrf_token", None)
                if form.method == "post":
                    answer = visit.submit(form.action, sent)
                else:
                    answer = visit.get(form.action, params=sent)
                assert answer.status_code == 400, (form.action, name, answer.status_code)
                marked = re.search(rf'<input[^>]*name="{name}"[^>]*aria-invalid="true"[^>]*>', answer.text)
                assert marked is not None, (form.action, name)
                assert 'value="abc"' in marked[0], (form.action, name)
                assert 'id="refused"' in answer.text, (form.action, name)
                assert "Expected `" not in answer.text, (form.action, name)
    assert len(seen) > 15, seen


def test_a_contact_that_is_no_number_is_said_at_the_field(visit: Visit) -> None:
    answer = visit.submit("/devices", {"customerId": BUSY, "by": "contact", "wanted": "abc"})
    assert answer.status_code == 400
    assert "<h1>Devices</h1>" in answer.text
    assert 'name="wanted" value="abc" required' in answer.text or 'value="abc" aria-invalid="true"' in answer.text
    assert "Expected a contact&#39;s id, which is a number." in answer.text
    assert f'value="{BUSY}"' in answer.text, "what was right stays too"


def test_a_confirmation_that_does_not_fit_leaves_everything_as_it_was(visit: Visit) -> None:
    form = {"customerId": BUSY, "contactId": CONTACT, "confirm": CONTACT + 1}
    answer = visit.submit("/contacts/erase", form)
    assert answer.status_code in {400, 409}
    assert f"What is known of contact {CONTACT}" in answer.text
    assert re.search(rf'name="confirm"[^>]* value="{CONTACT + 1}" aria-invalid="true"', answer.text)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/tenants?perPage=0", "Per page</a>: It must be 1 or more."),
        ("/tenants?status=odd", "Status</a>: It is none of the choices."),
        ("/failures?since=yesterday", "Since</a>: It must be a time"),
        (f"/audit?actor={'x' * 300}", "Actor</a>: It is too long: at most 200 characters."),
    ],
)
def test_an_address_that_says_something_odd_shows_the_page_and_why(visit: Visit, path: str, words: str) -> None:
    assert words in visit.see(path, status=400)


def test_what_is_filled_in_is_text_and_never_markup(visit: Visit) -> None:
    answer = visit.submit("/switches/exclusions", {"customerId": '"><script>1</script>', "reason": "a\"b'c<i>"})
    assert answer.status_code == 400
    assert "<script>1" not in answer.text
    assert 'value="a&#34;b&#39;c&lt;i&gt;"' in answer.text


def test_a_viewer_is_refused_before_anything_is_looked_at(viewer: Visit) -> None:
    answer = viewer.submit("/switches/flippers", {"name": "x"})
    assert answer.status_code == 403
    assert 'id="refused"' not in answer.text
