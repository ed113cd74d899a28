"""Which of a message's languages a device gets: RFC 4647 lookup over normalised tags, with likely subtags. Pure.

`iw` is `he`, `fr_CA` is `fr-CA` and falls back to `fr`; `zh-TW` is most likely written in Hant, so that it finds
`zh-Hant` before `zh`; `en`, most likely that of the US, finds `en-US` where there is no `en`.
"""

import functools
from collections.abc import Iterator

from langcodes import Language, standardize_tag
from langcodes.tag_parser import LanguageTagError

NORWEGIAN = {"nb": ("no",), "nn": ("no",), "no": ("nb",)}
"""Devices say Bokmål (`nb`) or Nynorsk where campaigns say Norwegian: in CLDR `no` is what both fall back to."""
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
    """RFC 4647, section 3.4, for one language range. What comes out is spelled as in `available`."""
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


def candidates(wanted: str) -> Iterator[str]:
    """What to look for, the best first: the tag itself, then it with its likely subtags, shorter and shorter."""
    yield normalised(wanted)
    likely = _likely(wanted)
    yield from truncations(likely)
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
    plain = normalised(tag)
    try:
        parsed = Language.get(plain)
    except LanguageTagError:
        return plain
    # A private tag (x-klingon) or the undetermined language says nothing that anything could be likely from.
    if not parsed.language or parsed.language == "und" or parsed.language.startswith("x-"):
        return plain
    return parsed.maximize().to_tag()
