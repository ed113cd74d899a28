"""Which of a message's languages a device gets: RFC 4647 lookup over normalised tags, with likely subtags. Pure.

`iw` is `he`, `fr_CA` is `fr-CA` and falls back to `fr`; `zh-TW` is most likely written in Hant, so that it finds
`zh-Hant` before `zh`; `en`, most likely that of the US, finds `en-US` where there is no `en`. On its way to `es`,
`es-MX` looks for its parent in CLDR, `es-419`. Where all that finds nothing, the nearest of the same language and
script by CLDR's distances is good enough: `de-CH` finds `de-DE`.
"""

import functools
from collections.abc import Iterator

from langcodes import Language, standardize_tag, tag_distance
from langcodes.tag_parser import LanguageTagError

NORWEGIAN = {"nb": ("no",), "nn": ("no",), "no": ("nb",)}
"""Devices say Bokmål (`nb`) or Nynorsk where campaigns say Norwegian: in CLDR `no` is what both fall back to."""
_CHILDREN = {
    "es-419": "AR BO BR BZ CL CO CR CU DO EC GT HN JP MX NI PA PE PR PY SV US UY VE",
    "pt-PT": "AO CH CV FR GQ GW LU MO MZ ST TL",
    "en-150": "AT BE CH CZ DE DK EE ES FI FR GE HU IT LT LV NL NO PL PT RO SE SI SK UA",
    "en-001": "150 AG AI AU BB BM BS BW BZ CC CK CM CX CY DG DM ER FJ FK GB GD GG GH GI GM GS GY HK ID IE IL IM IN IO "
    "JE JM KE KI KN KY LC LR LS MG MO MS MT MU MV MW MY NA NF NG NR NU NZ PG PK PN PW RW SB SC SD SG SH SL SS SX SZ TC "
    "TK TO TT TV TZ UG VC VG VU WS ZA ZM ZW",
    "zh-Hant-HK": "MO",
}
"""Regions whose language is a variety of another region's: `parentLocales` of CLDR, where it is not what shortening the
tag gives. https://github.com/unicode-org/cldr/blob/main/common/supplemental/supplementalData.xml"""
CACHED_TAGS = 4096
CACHED_CHOICES = 65_536


@functools.lru_cache(maxsize=CACHED_CHOICES)
def choose_language(wanted: str | None, default: str | None, available: tuple[str, ...]) -> str | None:
    """The one of `available` for a device that speaks `wanted`, else for `default`; None: there is none for either."""
    for tag in (wanted, default):
        if tag:
            found = lookup(tag, available)
            if found is not None:
                return found
    return None


def lookup(wanted: str, available: tuple[str, ...]) -> str | None:
    """What one language range finds, spelled as in `available`."""
    found = inherited(wanted, available)
    return nearest(wanted, available) if found is None else found


def inherited(wanted: str, available: tuple[str, ...]) -> str | None:
    """RFC 4647, section 3.4: the tag, or what it falls back to."""
    if wanted in available:
        return wanted
    offered: dict[str, str] = {}
    for tag in available:
        # Where two spellings mean the same, the first stands.
        offered.setdefault(normalised(tag), tag)
    for tag in available:
        offered.setdefault(_likely(tag), tag)
    for candidate in candidates(wanted):
        if candidate in offered:
            return offered[candidate]
    return None


def nearest(wanted: str, available: tuple[str, ...]) -> str | None:
    """The one that differs least by CLDR's distances, of those that the reader of `wanted` reads.

    That is the same language in the same script: who reads Ukrainian need not read Russian, nor Hans who reads Hant.
    Of several as near, the one of the language's most likely region, else the first in the alphabet.
    """
    meant = _parsed(wanted)
    if meant is None:
        return None
    read = {meant.language, *NORWEGIAN.get(str(meant.language), ())}
    near: list[tuple[int, bool, str, str]] = []
    for tag in dict.fromkeys(available):
        offered = _parsed(tag)
        if offered is not None and offered.language in read and offered.script == meant.script:
            is_usual = _likely(str(offered.language)) == _likely(tag)
            near.append((tag_distance(_likely(wanted), _likely(tag)), not is_usual, normalised(tag), tag))
    return min(near)[-1] if near else None


def candidates(wanted: str) -> Iterator[str]:
    """What to look for, the best first: the tag itself, then it with its likely subtags, shorter and shorter.

    Where CLDR has a parent for a region's language, the parent comes before the language alone.
    """
    yield normalised(wanted)
    likely = _likely(wanted)
    for tag in truncations(likely):
        yield tag
        parent = _parents().get(tag)
        while parent is not None:
            yield parent
            parent = _parents().get(parent)
    yield from NORWEGIAN.get(likely.partition("-")[0], ())


def truncations(tag: str) -> Iterator[str]:
    """The tag, and the tag without its last subtag, and so on. A single letter is never the last one."""
    subtags = tag.split("-")
    while subtags:
        yield "-".join(subtags)
        subtags.pop()
        if subtags and len(subtags[-1]) == 1:
            subtags.pop()


@functools.lru_cache(maxsize=CACHED_TAGS)
def normalised(tag: str) -> str:
    """The tag as BCP 47 spells it today: `iw` as `he`, `fr_CA` as `fr-CA`. What is no tag is only made lower case."""
    # A POSIX locale has its encoding and modifier behind the language: sr_RS.UTF-8@latin
    plain = tag.strip().partition(".")[0].partition("@")[0].replace("_", "-")
    try:
        return standardize_tag(plain, macro=True)
    except LanguageTagError:
        return plain.lower()


@functools.lru_cache(maxsize=CACHED_TAGS)
def _likely(tag: str) -> str:
    """The tag with the script and region that it most likely means: `zh-TW` as `zh-Hant-TW`."""
    parsed = _parsed(tag)
    return normalised(tag) if parsed is None else parsed.to_tag()


@functools.lru_cache(maxsize=CACHED_TAGS)
def _parsed(tag: str) -> Language | None:
    """The same in its parts; None: it is no tag, or does not say which language it is."""
    try:
        parsed = Language.get(normalised(tag))
    except LanguageTagError:
        return None
    # A private tag (x-klingon) or the undetermined language says nothing that anything could be likely from.
    if not parsed.language or parsed.language == "und" or parsed.language.startswith("x-"):
        return None
    return parsed.maximize()


@functools.cache
def _parents() -> dict[str, str]:
    """By tag, both with their likely subtags."""
    return {
        _likely(f"{parent.rpartition('-')[0]}-{region}"): _likely(parent)
        for parent, regions in _CHILDREN.items()
        for region in regions.split()
    }
