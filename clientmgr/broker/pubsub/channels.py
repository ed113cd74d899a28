"""How our own clients reach a gateway: plainly on this machine, or with TLS; with a token or certificate if it asks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import ensure_private
from clientmgr.base.settings import Settings

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # The library's own default is two minutes: too long to notice that a server came back.
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 30_000),
)


def gateway_channel(settings: Settings) -> Callable[[], Any] | None:
    """What opens a channel to PUBSUB_GATEWAY_ADDRESS or PUBSUB_EMULATOR_HOST. None: neither is set, so it is Google.

    The files are looked at now, so that a wrong setting is an error at start.
    """
    token = _Token(Path(settings.pubsub_token_file)) if settings.pubsub_token_file else None
    if settings.pubsub_gateway_address:
        credentials = _credentials(settings)
        if token is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(token))
        return lambda: grpc.aio.secure_channel(settings.pubsub_gateway_address, credentials, options=_CHANNEL_OPTIONS)
    if settings.pubsub_emulator_host:
        # gRPC gives credentials to nobody without TLS. A gateway on this machine takes them as plain metadata.
        shown = None if token is None else [_ShowToken(token)]
        address = settings.pubsub_emulator_host
        return lambda: grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS, interceptors=shown)
    return None


def _credentials(settings: Settings) -> Any:
    certificate, key = settings.pubsub_tls_certificate, settings.pubsub_tls_key
    if bool(certificate) != bool(key):
        missing = "PUBSUB_TLS_KEY" if certificate else "PUBSUB_TLS_CERTIFICATE"
        raise SettingsError(f"{missing}: expected a file, since its counterpart is set")
    if key:
        ensure_private(Path(key), "PUBSUB_TLS_KEY")
    return grpc.ssl_channel_credentials(
        _contents(settings.pubsub_tls_ca, "PUBSUB_TLS_CA"),
        _contents(key, "PUBSUB_TLS_KEY"),
        _contents(certificate, "PUBSUB_TLS_CERTIFICATE"),
    )


def _contents(file: str, setting: str) -> bytes | None:
    if not file:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise SettingsError(f"{setting}: {file} can't be read: {error.strerror}") from None


class _Token(grpc.AuthMetadataPlugin):  # type: ignore[misc]  # grpcio has no types
    """The token in its file, read for each call: one that is replaced counts at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.metadata()

    def metadata(self) -> tuple[str, str]:
        ensure_private(self._file, "PUBSUB_TOKEN_FILE")
        return "authorization", f"Bearer {self._file.read_text(encoding='utf-8').strip()}"

    def __call__(self, _context: Any, callback: Any) -> None:
        try:
            callback((self.metadata(),), None)
        except (OSError, ValueError, SettingsError) as error:
            callback((), error)


class _ShowToken(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpcio has no types
    def __init__(self, token: _Token) -> None:
        self._token = token

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = client_call_details.metadata or grpc.aio.Metadata()
        metadata.add(*self._token.metadata())
        return await continuation(client_call_details._replace(metadata=metadata), request)
