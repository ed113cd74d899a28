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
SHORTEST_SECRET_NAME: Final = 16
"""Shorter names of members look like no secret."""
LONG: Final = 20
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9]+")
_LIKELY: Final = re.compile(
    r"(?:tokens?|tokenvalue|secrets?|secretkey|passwords?|passwordhash|passwd|passphrase|authorization|apikeys?"
    r"|privatekey|credentials?|cookies?|registrationids?|fid|p256dh|endpoint|bearer|sessionkey|hashkey|accesskey)$"
    r"|^(?:auth|pwd|jwt|regids?)$|^(?:apns|fcm|hms)(?:device)?(?:id|key)?$"
)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LIKELY_WORDS: Final = re.compile(
    r".*\b(?:tokens?|secrets?|passwords?|passwd|pwd|passphrase|authorization|auth|jwt|credentials?|cookies?|bearer|fid"
    r"|endpoints? ur[il]|endpoint|(?:registration|reg) ids?"
    r"|(?:api|private|secret|session|hash|access|signing|signature|encryption|decryption|auth|server|shared|master)"
    r" keys?)\b"
)
"""The last such word of a name. What stands behind it (`pushTokenIos`, `token_old`) changes nothing, unless it says
that this is something about the secret."""
_ABOUT_IT: Final = re.compile(
    r"\b(?:status|state|kind|kinds|type|types|version|name|names|provider|source|error|reason|method|mode"
    r"|scheme|scope|role|user|file|path|domain|host|server|port|url|uri|count|number|total|share|size"
    r"|length|bytes|limit|max|min|prefix|at|date|time|timestamp|age|ttl|s|ms|seconds|hours|days|expiry"
    r"|expires|valid|invalid|expired|missing|none|superseded|included|required|enabled|failed|set|cleared"
    r"|updated|changed|created|seen|verdict|verdicts|claims|hash|hashes|digest|mark|fields|columns|within"
    r"|secure|context|members)\b"
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
# A password may have a slash or an @ in it. What follows a port is a path.
_URL_PASSWORD: Final = re.compile(
    r"""(?<=://)([^\s/:@"'\[]{0,100}:)(?:[^\s/"']{1,200}(?=@)|(?!\d{1,5}[/?#,])[^\s@"']{1,200}(?=@))"""
)
_MEMBER: Final = re.compile(r"""(?<![\w.-])(\\{0,31}["'`]?)([A-Za-z][\w.-]{1,60})\1\s*(?:=>|[:=])\s*""")
_PLACES: Final = re.compile(r"""^(\s*File "[^"\n]+", line \d+.*)$""", re.MULTILINE)
_QUOTE: Final = re.compile(r"""\\*["'`]""")
_QUOTES: Final = re.compile(r"""(?<!\\)(\\*)(["'`])""")
_BARE: Final = re.compile(r"""[^\s"'`,;&{}\[\]()<>\\]+""")
_NESTED: Final = re.compile(r"""[\[\]{}]|(?<!\\)\\*["'`]|[^\s"'`,;:&{}\[\]()<>\\]+""")

# Numbers stay as they were written: 1.10 is not to become 1.1 only because something beside it is masked.
_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


@functools.lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether a member of that name likely holds a secret."""
    plain = _plain(name)
    if plain in _NAMED or _LIKELY.search(plain) is not None:
        return True
    words = " ".join(_WORDS.findall(name)).lower()
    found = _LIKELY_WORDS.match(words)
    return found is not None and _ABOUT_IT.search(words, found.end()) is None


def name_secrets(names: Iterable[str]) -> None:
    """Members of these names hold secrets from now on, in all processes that import who says so."""
    _NAMED.update(map(_plain, names))
    is_secret_name.cache_clear()


def mask(secret: str | None) -> str | None:
    """Enough of a secret to tell it from another; of a short one nothing."""
    if secret is None or len(secret) < LONG:
        return None if secret is None else "…"
    return f"{secret[:6]}…{secret[-4:]}"


def masked(document: Any, *, secret: bool = False, whatever: bool = False) -> Any:
    """The document with the secrets in it masked, however deep they stand.

    It is what JSON can hold. `whatever`: it may hold other things too, and they are shown as texts, by their `repr`.
    """
    if isinstance(document, dict):
        found = {
            key if len(name := str(key)) < SHORTEST_SECRET_NAME else _shown_key(key, secret=secret): value
            if isinstance(value, str) and not secret and _is_id(name)
            else masked(value, secret=secret or is_secret_name(name), whatever=whatever)
            for key, value in document.items()
        }
        return found if len(found) == len(document) else _all_kept(document, secret=secret, whatever=whatever)
    if isinstance(document, list) or (whatever and isinstance(document, (tuple, set, frozenset))):
        return [masked(value, secret=secret, whatever=whatever) for value in document]
    if whatever and not isinstance(document, (str, bool, int, float, type(None))):
        document = repr(document)
    if isinstance(document, str):
        return mask(document) if secret else masked_words(document)
    if secret and isinstance(document, (int, float, Decimal)) and not isinstance(document, bool):
        return mask(str(document))
    return document


def _shown_key(key: Any, *, secret: bool) -> Any:
    """A member's name, masked where it is a secret itself: some services answer with a verdict for each token."""
    name = str(key)
    shown = mask(name) if secret and len(name) >= LONG else _without_looks(name)
    return key if shown == name else shown


def _all_kept(document: dict[Any, Any], *, secret: bool, whatever: bool) -> dict[Any, Any]:
    """The members masked one by one, and numbered where two masked names are the same."""
    found: dict[Any, Any] = {}
    number = 1
    for key, value in document.items():
        [(shown, kept)] = masked({key: value}, secret=secret, whatever=whatever).items()
        name = shown
        while name in found:
            number += 1
            name = f"{shown} ({number})"
        found[name] = kept
    return found


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
        end = _closing(text, quote.end(), quote[0])
        return f"{quote[0]}{mask(text[quote.end() : end])}", end
    if text[start : start + 1] in ("[", "{"):
        return _nested(text, start)
    bare = _BARE.match(text, start)
    if bare is None:
        return "", start
    return _bare(bare[0]), bare.end()


def _bare(value: str) -> str:
    """Prose says "token: expired" too."""
    return value if len(value) < 8 and value.isalpha() else str(mask(value))


def _closing(text: str, start: int, opening: str) -> int:
    """Where the text that begins there ends: at its closing quote, or at the end of all.

    A quote in it has a backslash more. Where JSON stands in JSON, all quotes have some: 1, 3, 7 as it gets deeper, and
    a backslash in the text is written as 2, 4, 8.
    """
    slashes = len(opening) - 1
    for quote in _QUOTES.finditer(text, start):
        if quote[2] == opening[-1] and len(quote[1]) % (2 * slashes + 2) == slashes:
            return quote.end() - len(opening)
    return len(text)


def _nested(text: str, start: int) -> tuple[str, int]:
    """The list or object that begins there, with all that is in it masked, and where it ends."""
    pieces: list[str] = []
    depth, done = 0, start
    while part := _NESTED.search(text, done):
        pieces.append(text[done : part.start()])
        done = part.end()
        if part[0] in "[{":
            depth += 1
        elif part[0] in "]}":
            depth -= 1
            if depth == 0:
                return "".join(pieces), part.start()
        elif part[0][-1] in "\"'`":
            end = _closing(text, done, part[0])
            pieces.append(f"{part[0]}{mask(text[done:end])}{text[end : end + len(part[0])]}")
            done = min(end + len(part[0]), len(text))
            continue
        else:
            pieces.append(_bare(part[0]))
            continue
        pieces.append(part[0])
    return "".join([*pieces, text[done:]]), len(text)


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
