"""What the devices of a generated load are like: made from seed, tenant and number, and so the same in each run."""

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, Final

from clientmgr.devices.state import DeviceKey

FIRST_CONTACT_ID: Final = 10_000
DEVICES_PER_CONTACT: Final = 2

_LANGUAGES = (
    "en",
    "en-GB",
    "fr",
    "fr-CA",
    "de",
    "hu",
    "es",
    "es-MX",
    "pt-BR",
    "it",
    "pl",
    "ja",
    "zh-Hant",
    "zh-TW",
    "ar",
)
_TIMEZONES = ("Europe/Budapest", "Europe/Paris", "Europe/London", "America/New_York", "America/Sao_Paulo", "Asia/Tokyo")


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of device: its share of all, and what is usual on it."""

    name: str
    per_mille: int
    token_kinds: tuple[str, ...]
    models: tuple[str, ...]
    os_versions: tuple[str, ...]


PLATFORMS: Final = (
    Platform(
        "android",
        460,
        ("fcm_token", "fcm_fid"),
        ("Pixel 9", "Pixel 8a", "SM-S928B", "SM-A556B", "2312DRA50G", "moto g84 5G"),
        ("13", "14", "15", "16"),
    ),
    Platform(
        "ios",
        400,
        ("apns",),
        ("iPhone14,5", "iPhone15,4", "iPhone16,1", "iPhone17,3", "iPad14,8"),
        ("17.6.1", "18.5", "18.6.2", "26.0", "26.1"),
    ),
    Platform(
        "web", 100, ("webpush",), ("Chrome 141", "Firefox 144", "Safari 26"), ("Windows 11", "macOS 15", "Android 15")
    ),
    Platform("android-huawei", 40, ("hms",), ("ALN-LX9", "NOH-NX9", "ELS-N39"), ("12", "13", "14")),
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What stays the same for a device over its life."""

    key: DeviceKey
    contact_id: int
    token_kind: str
    info: dict[str, Any]
    """The payload of its registration, but for what changes later."""

    def takes_tokens_of(self, other: "Traits") -> bool:
        """Whether a token of the other could have been its own: of the same application and provider."""
        return (self.key.application_code, self.token_kind) == (other.key.application_code, other.token_kind)


def traits_of(seed: int, tenant: int, number: int) -> Traits:
    digest = hashlib.blake2b(f"{seed}/{tenant}/{number}".encode(), digest_size=32)
    text, draws = digest.hexdigest(), digest.digest()
    platform = _platform(int.from_bytes(draws[:2], "big") % 1000)
    return Traits(
        key=DeviceKey(_application_code(tenant, draws[2] % 4 == 0), text[:24]),
        contact_id=FIRST_CONTACT_ID + number // DEVICES_PER_CONTACT,
        token_kind=_one_of(platform.token_kinds, draws[3]),
        info={
            "hardwareId": text[24:40],
            "platform": platform.name,
            "deviceModel": _one_of(platform.models, draws[4]),
            "osVersion": _one_of(platform.os_versions, draws[5]),
            "language": language(draws[6]),
            "timezone": timezone(draws[7]),
            "pushEnabled": draws[8] % 8 != 0,
        },
    )


def language(draw: int) -> str:
    return _one_of(_LANGUAGES, draw)


def timezone(draw: int) -> str:
    return _one_of(_TIMEZONES, draw)


@functools.lru_cache(maxsize=100_000)
def _application_code(tenant: int, second: bool) -> str:
    """A customer has two applications, one with a quarter of the devices."""
    digest = hashlib.blake2b(f"{tenant}/{second}".encode(), digest_size=3).hexdigest()
    return f"EMS{tenant % 100:02d}-{digest[:5].upper()}"


def _platform(per_mille: int) -> Platform:
    for platform in PLATFORMS:
        per_mille -= platform.per_mille
        if per_mille < 0:
            return platform
    raise AssertionError("the platforms' shares add up to 1000")


def _one_of(choices: tuple[str, ...], draw: int) -> str:
    return choices[draw % len(choices)]
