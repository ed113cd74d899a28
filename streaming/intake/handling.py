"""What becomes of a request: who asks, how much may they send, which events are these, and are they in the log."""

import functools
import http
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from clientmgr.base.errors import InvalidInputError, is_transient
from clientmgr.base.forwarded import Network, client_address, counted_as
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.broker.interface import Broker
from clientmgr.contracts import topics
from clientmgr.contracts.decoding import InvalidMessageError, Millis, decode
from clientmgr.contracts.intake_keys import KeyKind
from streaming.intake import cross_origin
from streaming.intake.authentication import Caller, SignedRequest, claimed_key, prove
from streaming.intake.events import JSON, JSON_LINES, Defaults, Intake, device_event, sent_events
from streaming.intake.http_messages import Request, Response
from streaming.intake.intake_metrics import EVENTS, REQUESTS, SECONDS
from streaming.intake.keyring import Keyring
from streaming.intake.limits import RateLimit
from streaming.intake.openapi import document
from streaming.intake.problems import PROBLEM_JSON, FieldProblem, RefusedError, invalid, wrong_field
from streaming.intake.routes import (
    DEVICES_PATH,
    DOCUMENT_PATH,
    EVENTS_PATH,
    OPEN_TO_ALL,
    Accepted,
    find_route,
    methods_of,
)

log = get_logger(__name__)

LONGEST_IDEMPOTENCY_KEY: Final = 200
TRY_AGAIN: Final = (("retry-after", "1"),)
_MILLIS: Final = msgspec.json.Decoder(Millis)
_ENCODER: Final = msgspec.json.Encoder()
_ANSWERED: Final = {int(status): REQUESTS.labels(int(status)) for status in http.HTTPStatus}


class Desk:
    """Answers requests. One per process."""

    def __init__(self, settings: Settings, broker: Broker, keyring: Keyring, proxies: Sequence[Network]) -> None:
        self._broker = broker
        self._keyring = keyring
        self._most_events = settings.intake_max_events
        self._repeats_are_dropped = broker.takes_dedup_keys
        self._of_keys = RateLimit("key", settings.intake_key_events_per_s, settings.intake_burst_s)
        self._of_addresses = RateLimit("address", settings.intake_address_events_per_s, settings.intake_burst_s)
        self._document = _ENCODER.encode(document(settings.intake_max_events))

        @functools.lru_cache(maxsize=10_000)
        def address(peer: str, forwarded_for: str) -> str:
            return counted_as(client_address(peer, forwarded_for, proxies))

        self._address = address

    async def answer(self, request: Request) -> Response:
        """Never raises but when it is cancelled."""
        began = time.perf_counter()
        shared = cross_origin.headers_of(request.headers, self._keyring.origins)
        try:
            response = await self._respond(request)
        except RefusedError as refusal:
            response = Response(refusal.status, refusal.body, PROBLEM_JSON, refusal.headers)
        except Exception as error:  # the one who asked gets an answer, whatever it is
            log.error("a request failed", method=request.method, path=request.target.partition("?")[0], exc_info=error)
            response = Response(500, RefusedError(500, "Something went wrong; the log says what.").body, PROBLEM_JSON)
        _ANSWERED[response.status].inc()
        if response.status == http.HTTPStatus.ACCEPTED:
            SECONDS.observe(time.perf_counter() - began)
        if shared:
            return Response(response.status, response.body, response.content_type, (*response.headers, *shared))
        return response

    async def _respond(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        if path == EVENTS_PATH:
            allowed, route, client_id = ["POST"], None, ""
        elif path.startswith(f"{DEVICES_PATH}/"):
            client_id, part = _device(path)
            allowed, route = methods_of(part), find_route(request.method, part)
        else:
            return self._open_to_all(request.method, path)
        if not allowed:
            raise RefusedError(404, "there is nothing here; /openapi.json says what there is")
        if request.method == "OPTIONS":
            return cross_origin.preflight(request.headers, self._keyring.origins, allowed)
        if request.method not in allowed:
            raise _method_not_allowed(allowed)
        caller = self._authenticated(request)
        media_type = _checked_media_type(request, lines=route is None, wanted=route is None or bool(route.bodies))
        defaults = _defaults(caller, request, self._repeats_are_dropped)
        if route is None:
            intake = sent_events(caller.key, request.body, media_type, self._most_events, defaults)
        else:
            if query:
                defaults = msgspec.structs.replace(defaults, occurred_at=_occurred_at(query, defaults.occurred_at))
            intake = device_event(caller.key, route, client_id, request.body, defaults)
        self._within_limits(caller, request, len(intake.messages))
        await self._publish(intake)
        return Response(202, _ENCODER.encode(Accepted(len(intake.event_ids), intake.event_ids)))

    def _open_to_all(self, method: str, path: str) -> Response:
        if path not in OPEN_TO_ALL:
            raise RefusedError(404, "there is nothing here; /openapi.json says what there is")
        if method not in ("GET", "HEAD"):
            raise _method_not_allowed(["GET", "HEAD"])
        if path == DOCUMENT_PATH:
            return Response(200, self._document)
        if self._keyring.is_stale:
            return Response(503, b"not well", "text/plain; charset=utf-8")
        return Response(200, b"ok", "text/plain; charset=utf-8")

    def _authenticated(self, request: Request) -> Caller:
        if self._keyring.is_stale:
            raise RefusedError(503, "keys can't be checked at the moment; try again", headers=TRY_AGAIN)
        is_counted = False
        idempotency_key = request.headers.get("idempotency-key", "")
        signed = SignedRequest(request.method, request.target, idempotency_key, request.body)
        try:
            key, proof = claimed_key(self._keyring, request.headers.get("authorization", ""))
            if key.kind == KeyKind.APP:
                # Before the signature is computed: it takes a while for a large body.
                self._count_address(request, 1)
                is_counted = True
            caller = prove(self._keyring, key, proof, signed, time.time_ns() // 1_000_000)
        except RefusedError as refusal:
            if refusal.status == http.HTTPStatus.UNAUTHORIZED and not is_counted:
                self._count_address(request, 1)
            raise
        cross_origin.ensure_allowed(request.headers, caller.key.origins)
        return caller

    def _within_limits(self, caller: Caller, request: Request, events: int) -> None:
        if caller.key.kind == KeyKind.APP and events > 1:
            self._count_address(request, events - 1)
        self._of_keys.take(caller.key.key_id, events, time.monotonic())

    def _count_address(self, request: Request, events: int) -> None:
        address = self._address(request.peer, request.headers.get("x-forwarded-for", ""))
        self._of_addresses.take(address, events, time.monotonic())

    async def _publish(self, intake: Intake) -> None:
        try:
            await self._broker.publish(topics.WRITER, intake.messages)
        except InvalidInputError as error:
            raise RefusedError(413, str(error)) from None
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("events could not be published", events=len(intake.messages), error=str(error).strip())
            raise RefusedError(
                503, "the log did not take it, or did not say so; send the same again", headers=TRY_AGAIN
            ) from None
        EVENTS.inc(len(intake.messages))


def _device(path: str) -> tuple[str, str]:
    """The client's id and what follows it. A slash in an id is written %2F."""
    encoded, _, part = path[len(DEVICES_PATH) + 1 :].partition("/")
    if not encoded:
        return "", "?"
    if "%" not in encoded and encoded.isascii():
        return encoded, part
    try:
        return unquote_to_bytes(encoded.encode("utf-8", "surrogateescape")).decode(), part
    except UnicodeDecodeError:
        raise invalid([FieldProblem("clientId", "expected UTF-8, percent-encoded")]) from None


def _checked_media_type(request: Request, *, lines: bool, wanted: bool) -> str:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(415, "Content-Encoding: expected none")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if wanted and media_type != JSON and not (lines and media_type == JSON_LINES):
        accepted = f"{JSON} or {JSON_LINES}" if lines else JSON
        raise RefusedError(415, f"Content-Type: expected {accepted}, got {media_type[:60] or 'none'}")
    return media_type


def _defaults(caller: Caller, request: Request, repeats_are_dropped: bool) -> Defaults:
    now_ms = time.time_ns() // 1_000_000
    event_id = _idempotency_key(request)
    if caller.signed is None:
        return Defaults(now_ms, now_ms, event_id, repeats_are_dropped)
    # Whoever replays it brings the same event once more, and that changes nothing.
    event_id = event_id or f"signed-{caller.signed.signature[:32]}"
    return Defaults(now_ms, caller.signed.timestamp_ms, event_id, repeats_are_dropped)


def _idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if not (key.isascii() and key.isprintable() and len(key) <= LONGEST_IDEMPOTENCY_KEY):
        raise invalid([FieldProblem("Idempotency-Key", f"expected at most {LONGEST_IDEMPOTENCY_KEY} ASCII characters")])
    return key


def _occurred_at(query: str, otherwise: int) -> int:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "occurredAt":
            try:
                at: int = decode(_MILLIS, value.encode(), prefix="occurredAt")
            except InvalidMessageError as error:
                raise invalid([wrong_field(str(error))]) from None
            return at
    return otherwise


def _method_not_allowed(allowed: Sequence[str]) -> RefusedError:
    return RefusedError(405, f"expected {', '.join(allowed)}", headers=(("allow", ", ".join(allowed)),))
