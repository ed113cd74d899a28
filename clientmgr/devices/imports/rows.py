"""A row of a file as what it says of a device, checked like an event: what is wrong is named by its field. Pure."""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from clientmgr.base.customer_ids import CustomerId, parse_customer_id
from clientmgr.base.errors import InvalidInputError
from clientmgr.contracts.decoding import (
    FUTURE_TOLERANCE_MS,
    MAX_IDENTIFIER_BYTES,
    InvalidMessageError,
    check_identifier,
)
from clientmgr.contracts.device_events import MAX_NESTING, PushTokenPayload, WebPush, WebPushKeys, check_storable
from clientmgr.contracts.device_fields import Kind
from clientmgr.contracts.push_tokens import TokenKind
from clientmgr.devices.imports import columns
from clientmgr.devices.imports.columns import Plan

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_KINDS: Final = frozenset(get_args(TokenKind))
KINDS_OF_TEXT: Final = _KINDS - {"webpush"}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}(\.0+)?")
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
LONGEST_TOKEN: Final = 8192
MASKED: Final = "…"
"""What an export without --reveal has in the place of most of a token."""


class RowError(ValueError):
    """The row can't be imported: which field, what was expected, what was found."""


class ImportedRow(Struct, frozen=True, gc=False):
    """What a row says of a device, at one moment."""

    customer_id: CustomerId
    version: int
    application_code: str
    client_id: str
    info: dict[str, Any]
    token: PushTokenPayload | None = None
    is_invalid: bool = False
    """The provider called the token invalid."""
    contact_id: int | None = None
    unlinked_at: int | None = None
    """Since when it has no contact."""


class RowConverter:
    """Converts rows. An empty cell or a null says nothing: in most files it may as well be unknown."""

    def __init__(
        self, *, now_ms: int, default_version: int, customer_id: CustomerId | None, application_code: str | None
    ) -> None:
        self._latest = now_ms + FUTURE_TOLERANCE_MS
        self._customer_id = customer_id
        self.default_version = default_version
        self.application_code = application_code

    def convert(self, plan: Plan, values: Sequence[Any]) -> ImportedRow:
        if plan.unknown:
            name = plan.unknown[0]
            raise RowError(
                f"{name}: no field of a device is called so; --map {name}=FIELD, or --map {name}= to leave it out"
            )
        said = {
            name: value for name, place in plan.single.items() if (value := values[place]) is not None and value != ""
        }
        info: dict[str, Any] = {
            name: PARSERS[kind](json_name, value)
            for place, name, json_name, kind in plan.info
            if (value := values[place]) is not None and value != ""
        }
        for place, field, member in plan.members:
            if (value := values[place]) is not None and value != "":
                info[field.name] = {**info.get(field.name, {}), member: _member(f"{field.json_name}.{member}", value)}
        version = self._version(said)
        contact_id = said.get(columns.CONTACT)
        since = said.get(columns.ORPHANED_SINCE)
        token, is_invalid = token_in(said)
        return ImportedRow(
            self.customer(said.get(columns.CUSTOMER)),
            version,
            self.identifier(columns.APPLICATION, said.get(columns.APPLICATION, self.application_code)),
            self.identifier(columns.CLIENT, said.get(columns.CLIENT)),
            info,
            token,
            is_invalid,
            None if contact_id is None else contact_id_of(contact_id),
            None if since is None or contact_id is not None else min(version, moment_of(columns.ORPHANED_SINCE, since)),
        )

    def customer(self, value: Any) -> CustomerId:
        if value is None:
            if self._customer_id is None:
                raise RowError(
                    f"{columns.CUSTOMER}: expected, but missing (or name one for the whole file: --customer)"
                )
            return self._customer_id
        try:
            customer_id = parse_customer_id(value.strip() if isinstance(value, str) else value)
        except InvalidInputError as error:
            raise RowError(str(error)) from None
        if self._customer_id is not None and customer_id != self._customer_id:
            raise RowError(f"{columns.CUSTOMER}: expected {self._customer_id}, as --customer says, got {customer_id}")
        return customer_id

    def _version(self, said: dict[str, Any]) -> int:
        for name in (columns.OCCURRED_AT, columns.LAST_SEEN):
            if (value := said.get(name)) is not None:
                return self.past_moment(name, value)
        return self.default_version

    def past_moment(self, name: str, value: Any) -> int:
        moment = moment_of(name, value)
        if moment > self._latest:
            raise RowError(f"{name}: expected a time of the past, got {value!s}")
        return moment

    @staticmethod
    def identifier(name: str, value: Any) -> str:
        if value is None:
            raise RowError(f"{name}: expected, but missing")
        text = _text(name, str(value) if type(value) is int else value)
        if len(text) > MAX_IDENTIFIER_BYTES:
            raise RowError(f"{name}: expected at most {MAX_IDENTIFIER_BYTES} characters, got {len(text)}")
        try:
            check_identifier(name, text)
        except InvalidMessageError as error:
            raise RowError(str(error)) from None
        return text


def token_in(said: dict[str, Any]) -> tuple[PushTokenPayload | None, bool]:
    """The push token or subscription of a row, and whether it is an invalid one. No reason quotes a token."""
    token, web_push = said.get(columns.TOKEN), _web_push(said)
    if token is None and web_push is None:
        return None, False
    kind = str(said.get(columns.KIND, "webpush" if web_push else "none"))
    status = said.get(columns.STATUS, "valid")
    if kind not in _KINDS:
        raise RowError(f"{columns.KIND}: expected one of {', '.join(sorted(_KINDS))} with a push token, got {kind!r}")
    if status not in ("valid", "invalid"):
        raise RowError(f"{columns.STATUS}: expected valid or invalid with a push token, got {status!r}")
    if (kind == "webpush") is (web_push is None) or (token is not None and web_push is not None):
        wanted = columns.WEB_PUSH if kind == "webpush" else columns.TOKEN
        raise RowError(f"{columns.KIND}: {kind!r} goes with {wanted} alone")
    if web_push is not None:
        return PushTokenPayload("webpush", web_push=web_push), status == "invalid"
    return PushTokenPayload(kind, push_token=token_part(token)), status == "invalid"


def token_part(value: Any) -> str:
    text = _text(columns.TOKEN, value)
    if len(text) > LONGEST_TOKEN:
        raise RowError(f"{columns.TOKEN}: expected at most {LONGEST_TOKEN} characters, got {len(text)}")
    _refuse_masked(columns.TOKEN, text)
    return text


def token_text(token: PushTokenPayload) -> str:
    """What a token is known by, before it is hashed."""
    return token.web_push.endpoint if isinstance(token.web_push, WebPush) else str(token.push_token)


def _web_push(said: dict[str, Any]) -> WebPush | None:
    whole = said.get(columns.WEB_PUSH)
    if whole is not None:
        parsed = _object(columns.WEB_PUSH, whole)
    elif columns.ENDPOINT in said:
        keys = {"p256dh": said.get(columns.P256DH), "auth": said.get(columns.AUTH)}
        parsed = {"endpoint": said[columns.ENDPOINT], "keys": keys}
    else:
        return None
    try:
        web_push = msgspec.convert(parsed, WebPush)
    except msgspec.ValidationError as error:
        # Without the value: it is a secret.
        raise RowError(f"{columns.WEB_PUSH}: {str(error).replace('`', '')}") from None
    for text in (web_push.endpoint, web_push.keys.p256dh, web_push.keys.auth):
        _refuse_masked(columns.WEB_PUSH, _text(columns.WEB_PUSH, text))
    return WebPush(web_push.endpoint, WebPushKeys(web_push.keys.p256dh, web_push.keys.auth))


def _refuse_masked(name: str, text: str) -> None:
    if MASKED in text:
        raise RowError(f"{name}: expected the whole, got one that is masked: `clientmgr devices export --reveal`")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RowError(f"{name}: expected text, got {_shown(value)}")
    if "\0" in value:
        raise RowError(f"{name}: expected text without NUL characters, got one")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowError(f"{name}: expected UTF-8, got other bytes") from None
    return value


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise RowError(f"{name}: expected true or false, got {_shown(value)}")
    return found


def _integer(name: str, value: Any) -> int:
    number = None
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        number = int(value.strip().partition(".")[0])
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 2**53:
        number = int(value)  # a column of integers with gaps, as pandas writes it
    if number is None or not -(2**63) <= number < 2**63:
        raise RowError(f"{name}: expected an integer, got {_shown(value)}")
    return number


def contact_id_of(value: Any) -> int:
    contact_id = _integer(columns.CONTACT, value)
    if contact_id <= 0:
        raise RowError(f"{columns.CONTACT}: expected a positive integer, got {contact_id}")
    return contact_id


def _object(name: str, value: Any) -> dict[str, Any]:
    is_plain = False
    if isinstance(value, str):
        # Hardly any has a NUL or this many brackets, so that hardly any is searched through.
        is_plain = "\\u0000" not in value and value.count("[") + value.count("{") <= MAX_NESTING
        try:
            value = msgspec.json.decode(_text(name, value))
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            raise RowError(f"{name}: expected a JSON object, got {_shown(value)}") from None
    if not isinstance(value, dict):
        raise RowError(f"{name}: expected a JSON object, got {_shown(value)}")
    if is_plain:
        return value
    try:
        check_storable(value, name)
    except InvalidMessageError as error:
        raise RowError(str(error)) from None
    return value


def _member(name: str, value: Any) -> Any:
    """Of an object: whatever JSON can hold."""
    return _object(name, {"": value})[""] if isinstance(value, dict | list) else _scalar(name, value)


def _scalar(name: str, value: Any) -> str | int | float | bool:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value.isoformat() if isinstance(value, datetime) else _text(name, value)


def moment_of(name: str, value: Any) -> int:
    """Epoch milliseconds, from those or from ISO 8601. Without a zone it is UTC."""
    moment: Any = value
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit():
            moment = int(text[:20])
        else:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                moment = None
    elif isinstance(value, float) and value.is_integer():
        moment = int(value)
    if isinstance(moment, datetime):
        moment = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - EPOCH
        moment //= _MILLISECOND
    if not isinstance(moment, int) or isinstance(moment, bool) or not 0 < moment < 2**53:
        raise RowError(f"{name}: expected epoch milliseconds or a time in ISO 8601, got {_shown(value)}")
    return moment


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"


PARSERS: Final[dict[Kind, Callable[[str, Any], Any]]] = {
    Kind.TEXT: _text,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.JSON: _object,
}
