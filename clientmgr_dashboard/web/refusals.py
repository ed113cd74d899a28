"""A form that was refused: its page once more, with what was filled in and, at the field, what is wrong in plain words.

It is written into the page as a template rendered it, so that no template has to know, and no form can be forgotten.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec
from markupsafe import escape
from starlette.requests import Request

from clientmgr.base.errors import ClientManagerError
from clientmgr.base.masking import masked_data
from clientmgr_dashboard.access.dashboard_door import CSRF_FIELD
from clientmgr_dashboard.operations.interface import ForbiddenError
from clientmgr_dashboard.web.forms import VERBATIM, form_fields, query_of

_AT: Final = re.compile(r"(?P<what>.*?) - at `\$\.?(?P<field>\w*).*`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_OURS: Final = re.compile(r"(?P<field>\w+): (?P<what>.+)", re.DOTALL)
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_FORM: Final = re.compile(r"<form\b(?P<head>[^>]*)>(?P<inside>.*?)</form>", re.DOTALL)
_HIDDEN: Final = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
_FIELD: Final = re.compile(
    r'<(?P<kind>input|select)\b(?P<head>[^>]*?\bname="(?P<name>\w+)"[^>]*)>'
    r"(?P<inside>(?:\s*<option\b[^>]*>[^<]*</option>)*\s*</select>)?",
    re.DOTALL,
)
_VALUE: Final = re.compile(r' value="[^"]*"')
_KEPT_TYPES: Final = re.compile(r'type="(?:hidden|checkbox|radio|password)"')
ANYTHING: Final = "wanted"
"""The field in which people look for a contact, a client id, or a token."""
LONGEST_SHOWN: Final = 20
"""Of what was typed there: a token is longer."""
NOTE: Final = "refused"
"""The id of the sentence at the field."""
_PLAIN: Final = (
    (re.compile(r"Expected `int`, got"), "It must be a whole number, in digits."),
    (re.compile(r"Expected `int` >= (\S+)"), r"It must be \1 or more."),
    (re.compile(r"Expected `int` <= (\S+)"), r"It must be \1 or less."),
    (re.compile(r"Integer value out of range"), "It is too large."),
    (re.compile(r"Expected `str` of length >= 1"), "It is empty: fill it in."),
    (re.compile(r"Expected `\w+` of length <= (\S+)"), r"It is too long: at most \1 characters."),
    (re.compile(r"Expected `str` matching regex"), "It is not written as it must be."),
    (re.compile(r"Invalid (?:enum|literal) value|Expected `bool`"), "It is none of the choices."),
    (re.compile(r"Invalid RFC3339|Expected `datetime`"), "It must be a time, like 2026-01-31T12:00."),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was wrong with a form."""

    action: str
    """The form's address."""
    field: str
    """Which field is to blame; empty: none alone."""
    message: str
    fields: Mapping[str, str]
    """What was filled in. What looks like a secret is not among it: it was typed into the wrong field."""

    @property
    def label(self) -> str:
        return name_in_words(self.field)

    def queries(self) -> Iterator[bytes]:
        """Addresses to show the form's page with: with what was all right, then with nothing."""
        kept = {name: text for name, text in self.fields.items() if name != self.field and text}
        if kept:
            yield urlencode(kept).encode()
        yield b""

    def written_into(self, page: str) -> str:
        """The page with what was filled in, and the field marked."""
        forms = [form for form in _FORM.finditer(page) if f'action="{escape(self.action)}"' in form["head"]]
        # Of several forms that do the same, the one with our hidden fields (a row's) and most of our others.
        alike = [form for form in forms if len(forms) == 1 or self._is_from(form["inside"])]
        if not alike:
            return page
        ours = max(alike, key=lambda form: sum(f'name="{name}"' in form["inside"] for name in self.fields))
        return page[: ours.start("inside")] + _FIELD.sub(self._field, ours["inside"]) + page[ours.end("inside") :]

    def _is_from(self, inside: str) -> bool:
        hidden = [(name, value) for name, value in _HIDDEN.findall(inside) if name != CSRF_FIELD]
        return all(str(escape(self.fields.get(name, ""))) == value for name, value in hidden)

    def _field(self, field: re.Match[str]) -> str:
        kind, head, inside, name = field["kind"], field["head"], field["inside"] or "", field["name"]
        filled = escape(self.fields.get(name, ""))
        if kind == "input" and not _KEPT_TYPES.search(head):
            head = f'{_VALUE.sub("", head)} value="{filled}"'
        elif kind == "select" and filled:
            inside = inside.replace(" selected", "")
            for start in (f'<option value="{filled}"', f"<option>{filled}<"):
                inside = inside.replace(start, start.replace("<option", "<option selected", 1), 1)
        if name != self.field or 'type="hidden"' in head:
            return f"<{kind}{head}>{inside}"
        note = f'<span class="refusal" id="{NOTE}">{escape(self.message)}</span>'
        return f'<{kind}{head} aria-invalid="true" aria-describedby="{NOTE}" autofocus>{inside}{note}'


def name_in_words(field: str) -> str:
    """customerId: Customer id."""
    return "What to find" if field == ANYTHING else _WORDS.sub(" ", field).capitalize()


async def refusal_of(error: Exception, request: Request) -> Refusal | None:
    """What is wrong with the form, or None where that is not what is wrong."""
    if not isinstance(error, ClientManagerError | msgspec.ValidationError) or isinstance(error, ForbiddenError):
        return None
    if request.method == "GET":
        sent: Mapping[str, str] = query_of(request)
        if not sent:
            return None
    else:
        sent = {name: text for name, text in (await form_fields(request)).items() if isinstance(text, str)}
    field, message = in_plain_words(error)
    if isinstance(error, ClientManagerError) and field not in sent and field != "":
        field, message = "", str(error)
    return Refusal(
        request.url.path, field, message, {name: text for name, text in sent.items() if _may_show(name, text)}
    )


def _may_show(name: str, text: str) -> bool:
    if name == ANYTHING and len(text) > LONGEST_SHOWN:
        return False
    return name in VERBATIM or masked_data(text.encode()) == text.encode()


def in_plain_words(error: Exception) -> tuple[str, str]:
    """Which field is wrong, and why: msgspec says it in the words of Python's types."""
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        missing = _MISSING.match(text)
        if missing:
            return missing[1], "It is empty: fill it in."
        found = _AT.fullmatch(text)
        what, field = (found["what"].replace(" | null", ""), found["field"]) if found else (text, "")
        plain = ((pattern.match(what), words) for pattern, words in _PLAIN)
        return field, next((match.expand(words) for match, words in plain if match), what)
    ours = _OURS.fullmatch(text)
    if ours is None:
        return "", text
    what = ours["what"].partition(", got ")[0]
    return ours["field"], f"{what[0].upper()}{what[1:]}."
