"""Hides what would let somebody else push to a device or sign in: in a field, a message, an error, a line of the log.

The one rule. A secret is known by the likely name of its member, in any spelling, or by its looks. Ids that operators
need (events, clients, contacts, customers, messages) look like none, and stay. Pure.
"""

import functools
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec


def _plain(name: str) -> str:
    """`push_token`, `pushToken`, `Push-Token` and `PUSH TOKEN` are one name."""
    return _SEPARATORS.sub("", name).lower()


SHORTEST_WITH_SECRET: Final = 6
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9]+")
_LIKELY: Final = re.compile(
    r"(?:tokens?|tokenvalue|secrets?|secretkey|passwords?|passwordhash|passwd|passphrase|authorization|apikeys?"
    r"|privatekey|credentials?|cookies?|registrationids?|fid|p256dh|endpoint|bearer|sessionkey|hashkey|accesskey)$"
    r"|^(?:auth|pwd)$|^(?:apns|fcm|hms)(?:device)?(?:id|key)?$"
)
_NAMED: Final[set[str]] = set()
"""What the contracts call a secret, likely name or not. They stand above, so they say it themselves."""
_IDS: Final = frozenset(
    _plain(name)
    for name in (
        *("eventId", "clientId", "contactId", "customerId", "messageId", "outMessageId", "campaignId", "hardwareId"),
        *("applicationCode", "fromContactId", "intoContactId", "transactionId", "deviceId", "runId"),
    )
)
"""What operators search for, whatever it looks like."""

_MIXED: Final = r"(?=[\w+/-]*[0-9])(?=[\w+/-]*[A-Z])(?=[\w+/-]*[a-z])"
_LOOKS: Final = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)",
            r"https?://(?:fcm\.googleapis\.com|android\.googleapis\.com|[\w.-]{0,100}notify\.windows\.com"
            r"|[\w.-]{0,100}push\.[\w.-]{1,100})/[^\s\"'<>\\)\]}]+",
            r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}",  # a JSON Web Token
            r"(?<![\w-])[\w-]{11,64}:APA91[\w-]{20,}",  # FCM
            r"(?<![0-9A-Za-z])(?:[0-9a-f]{64,}|[0-9A-F]{64,})(?![0-9A-Za-z])",  # APNs
            rf"(?<![\w-]){_MIXED}[cdef][A-Za-z0-9_-]{{21}}(?![\w-])",  # a Firebase installation's id
            rf"(?<![\w+/-]){_MIXED}[\w+/-]{{80,}}={{0,2}}",  # long and random
        )
    ),
    re.DOTALL,
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})")
_URL_PASSWORD: Final = re.compile(r"""(?<=://)([^\s/:@"']{0,100}:)[^\s/@"']{1,200}(?=@)""")
_MEMBER: Final = re.compile(r"""(?<![\w.-])(\\*["'`]?)([A-Za-z][\w.-]{1,60})\1\s*(?:=>|[:=])\s*""")
_PLACES: Final = re.compile(r"""^(\s*File "[^"\n]+", line \d+.*)$""", re.MULTILINE)
_QUOTE: Final = re.compile(r"""\\*["'`]""")
_BARE: Final = re.compile(r"""[^\s"'`,;&{}\[\]()<>\\]+""")
_TEXTS: Final = re.compile(r"""(\\*["'`])([^"'`\\]+)""")

# Numbers stay as they were written: 1.10 is not to become 1.1 only because something beside it is masked.
_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


@functools.lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether a member of that name likely holds a secret."""
    plain = _plain(name)
    return plain in _NAMED or _LIKELY.search(plain) is not None


def name_secrets(names: Iterable[str]) -> None:
    """Members of these names hold secrets from now on, in all processes that import who says so."""
    _NAMED.update(map(_plain, names))
    is_secret_name.cache_clear()


def mask(secret: str | None) -> str | None:
    """Enough of a secret to tell it from another; of a short one nothing."""
    if secret is None or len(secret) < 20:
        return None if secret is None else "…"
    return f"{secret[:6]}…{secret[-4:]}"


def masked(document: Any, *, secret: bool = False, whatever: bool = False) -> Any:
    """The document with the secrets in it masked, however deep they stand.

    It is what JSON can hold. `whatever`: it may hold other things too, and they are shown as texts, by their `repr`.
    """
    if isinstance(document, dict):
        return {
            key: value
            if isinstance(value, str) and not secret and _is_id(str(key))
            else masked(value, secret=secret or is_secret_name(str(key)), whatever=whatever)
            for key, value in document.items()
        }
    if isinstance(document, list) or (whatever and isinstance(document, (tuple, set, frozenset))):
        return [masked(value, secret=secret, whatever=whatever) for value in document]
    if whatever and not isinstance(document, (str, bool, int, float, type(None))):
        document = repr(document)
    if isinstance(document, str):
        return mask(document) if secret else masked_words(document)
    return document


def masked_words(text: str) -> str:
    """A text for people, such as an error, without the secrets that it quotes."""
    if len(text) < SHORTEST_WITH_SECRET:
        return text
    text = _BEARER.sub(lambda found: f"{found[1]} {mask(found[2])}", text)
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1…", text)
    pieces: list[str] = []
    done = 0
    for member in _MEMBER.finditer(text):
        name = member[2].rpartition(".")[2]
        is_id = _is_id(name)
        if member.start() < done or not (is_id or is_secret_name(name)):
            continue
        value, end = _value(text, member.end())
        pieces += [_without_looks(text[done : member.end()]), text[member.end() : end] if is_id else value]
        done = end
    return "".join([*pieces, _without_looks(text[done:])])


def masked_traceback(text: str) -> str:
    """A traceback without the secrets that its errors and lines quote. Where each line stands is left as it is."""
    return "".join(piece if number % 2 else masked_words(piece) for number, piece in enumerate(_PLACES.split(text)))


def _value(text: str, start: int) -> tuple[str, int]:
    """The value that begins there, masked, and where it ends."""
    if quote := _QUOTE.match(text, start):
        end = text.find(quote[0], quote.end())
        end = len(text) if end < 0 else end
        return f"{quote[0]}{mask(text[quote.end() : end])}", end
    if text[start : start + 1] in ("[", "{"):
        end = text.find("]" if text[start] == "[" else "}", start)
        end = len(text) if end < 0 else end
        return _TEXTS.sub(lambda found: f"{found[1]}{mask(found[2])}", text[start:end]), end
    bare = _BARE.match(text, start)
    if bare is None:
        return "", start
    # Prose says "token: expired" too.
    is_word = len(bare[0]) < 8 and bare[0].isalpha()
    return bare[0] if is_word else str(mask(bare[0])), bare.end()


def _without_looks(text: str) -> str:
    return _LOOKS.sub(lambda found: str(mask(found[0])), text)


@functools.lru_cache(4096)
def _is_id(name: str) -> bool:
    return _plain(name) in _IDS


def masked_data(data: bytes) -> bytes:
    """A message's contents without secrets, on one line where they are JSON.

    What is not JSON (that may be why somebody looks at it) is searched for what looks like a secret.
    """
    try:
        return _ENCODER.encode(masked(_DECODER.decode(data)))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        text = data.decode(errors="surrogateescape")
        return masked_words(text).encode(errors="surrogateescape")


def masked_text(data: bytes) -> str:
    """A message's contents for people: indented where they are JSON, and without secrets."""
    return plain_text(masked_data(data))


def plain_text(data: bytes) -> str:
    """A message's contents as they are, indented where they are JSON."""
    try:
        return msgspec.json.format(data.decode(), indent=2)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return data.decode(errors="backslashreplace")
