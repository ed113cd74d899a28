"""Decodes and checks a record of the telemetry stream, for the broadcast and for the durable writer."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec

from clientmgr.base.errors import InvalidInputError

Fields: TypeAlias = Mapping[bytes, bytes]
"""The fields of a stream entry, as Redis returns them."""

MAX_ID_LENGTH = 128
LARGEST_RECORD = 65_536
"""Bytes, unless LIVE_MAX_RECORD_BYTES says otherwise."""
OLDEST = datetime(2000, 1, 1, tzinfo=UTC)
FUTURE_ALLOWED = timedelta(minutes=5)
"""A fix further in the future is refused: later fixes of the device would look older and never be shown."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ABSENT = (b"", b"null")
_BEFORE_NOTHING = b"} \t\r\n"  # how an object without members goes on


class RecordTooLargeError(InvalidInputError):
    """A record above LIVE_MAX_RECORD_BYTES. One such record in a snapshot would shut out every viewer."""


class Payload(msgspec.Struct, frozen=True, gc=False):
    """What a device measured. Its `ts` is ignored: the entry's own `ts` counts."""

    latitude: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    longitude: Annotated[float, msgspec.Meta(ge=-180, le=180)]
    deviceId: str | None = None  # as the contract spells it
    altitude: float | None = None
    speed: float | None = None
    course: float | None = None
    accuracy: float | None = None
    satellites: Annotated[int, msgspec.Meta(ge=0, le=32_767)] | None = None
    attributes: msgspec.Raw = msgspec.Raw()


class Body(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A position as subscribers see it, without the topic."""

    deviceId: str
    lat: float
    lon: float
    ts: int
    speed: float | None = None
    course: float | None = None
    accuracy: float | None = None
    attributes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Position(msgspec.Struct, frozen=True, gc=False):
    """A record that passed every check."""

    device_id: str
    fixed_at: datetime
    ts: int
    """Epoch milliseconds of the fix."""
    codec: str | None
    payload: Payload
    attributes: bytes | None
    """A JSON object with members; None: there are no attributes."""

    def body(self) -> bytes:
        """JSON for subscribers, without the topic."""
        measured = self.payload
        return _encoder.encode(
            Body(
                self.device_id,
                measured.latitude,
                measured.longitude,
                self.ts,
                measured.speed,
                measured.course,
                measured.accuracy,
                msgspec.UNSET if self.attributes is None else measured.attributes,
            )
        )


_decoder = msgspec.json.Decoder(Payload)
_encoder = msgspec.json.Encoder()


def decode_record(fields: Fields, now: datetime, largest_bytes: int = LARGEST_RECORD) -> Position:
    """The position in an entry. Raises `InvalidInputError`, which names the wrong field."""
    # The others have limits of their own, and what we do not know goes nowhere.
    if (size := len(fields.get(b"payload", b"")) + len(fields.get(b"codec", b""))) > largest_bytes:
        raise RecordTooLargeError("record", f"at most {largest_bytes} bytes", size)
    device_id = _text(fields, b"device_id")
    if not 0 < len(device_id) <= MAX_ID_LENGTH or "\0" in device_id:
        raise InvalidInputError("device_id", f"1 to {MAX_ID_LENGTH} characters", device_id)
    fixed_at = _time(_text(fields, b"ts"), now)
    codec = _text(fields, b"codec") if b"codec" in fields else None
    if codec is not None and "\0" in codec:
        raise InvalidInputError("codec", "text without NUL characters, which PostgreSQL can't keep", codec)
    payload, attributes = _payload(fields)
    if payload.deviceId is not None and payload.deviceId != device_id:
        raise InvalidInputError("payload.deviceId", f"the entry's device_id, {device_id}", payload.deviceId)
    ts = (fixed_at - _EPOCH) // _MILLISECOND
    return Position(device_id, fixed_at, ts, codec, payload, attributes)


def record_size(fields: Fields) -> int:
    """With fields that we do not know."""
    return sum(map(len, fields.values()))


def _text(fields: Fields, name: bytes) -> str:
    value = fields.get(name)
    if value is None:
        raise InvalidInputError(name.decode(), "a value", None)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidInputError(name.decode(), "UTF-8", value) from None


def _time(text: str, now: datetime) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not UTC:
            # Trackers mean UTC when they give no offset.
            time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError("ts", "an ISO 8601 time", text) from None
    if not OLDEST <= time <= now + FUTURE_ALLOWED:
        raise InvalidInputError("ts", f"a time from {OLDEST.year} to five minutes from now", text)
    return time


def _payload(fields: Fields) -> tuple[Payload, bytes | None]:
    """The measured values, and the JSON of the attributes if there are any."""
    # Decode UTF-8 first, so that strings are checked too: browsers close the connection when a frame is not UTF-8.
    text = _text(fields, b"payload")
    try:
        payload = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise InvalidInputError("payload", f"a position ({error})", text) from None
    except RecursionError:
        raise InvalidInputError("payload", "JSON of a sensible depth", text) from None
    raw = bytes(payload.attributes)
    if raw in _ABSENT:
        return payload, None
    if not raw.startswith(b"{"):
        raise InvalidInputError("payload.attributes", "an object", raw)
    return payload, None if raw[1:2] in _BEFORE_NOTHING and not raw[1:-1].strip() else raw
