"""Languages: RFC 4647 lookup over normalised tags, with likely subtags and CLDR's parents; then the nearest."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langcodes import Language

from clientmgr.sending.language import (
    NORWEGIAN,
    candidates,
    choose_language,
    inherited,
    lookup,
    normalised,
    truncations,
)
from tests.device_mapper.samples import unhurried


@pytest.mark.parametrize(
    ("wanted", "available", "expected"),
    [
        ("zh-TW", ("zh", "zh-Hant"), "zh-Hant"),
        ("zh-TW", ("zh",), "zh"),
        ("zh-HK", ("zh", "zh-Hant", "zh-Hans"), "zh-Hant"),
        ("zh-CN", ("zh-Hant", "zh-Hans"), "zh-Hans"),
        ("zh-Hant", ("zh-TW", "zh"), "zh-TW"),
        ("iw", ("en", "he"), "he"),
        ("he", ("iw", "en"), "iw"),
        ("in", ("id",), "id"),
        ("fr_CA", ("fr", "en"), "fr"),
        ("fr_CA", ("fr", "fr-CA"), "fr-CA"),
        ("FR-ca", ("fr_ca",), "fr_ca"),
        ("sr-Latn-RS", ("sr", "sr-Latn"), "sr-Latn"),
        ("sr-Latn-RS", ("sr-Cyrl", "sr"), "sr"),
        ("sr", ("sr-Latn", "sr-Cyrl"), "sr-Cyrl"),
        ("sh", ("sr-Latn", "en"), "sr-Latn"),
        ("en", ("en-US",), "en-US"),
        ("en-GB", ("en-US",), "en-US"),
        ("en-GB", ("en-US", "en"), "en"),
        ("pt", ("pt-PT", "pt-BR"), "pt-BR"),
        ("de-CH-1996", ("de", "de-CH"), "de-CH"),
        ("de-DE-u-co-phonebk", ("de",), "de"),
        ("en-x-pirate", ("en", "en-x-pirate"), "en-x-pirate"),
        ("cmn-TW", ("zh-Hant",), "zh-Hant"),
        ("sr_RS.UTF-8@latin", ("sr",), "sr"),
        ("i-klingon", ("tlh",), "tlh"),
        ("x-klingon", ("en", "tlh"), None),
        ("x-klingon", ("en", "x-klingon"), "x-klingon"),
        ("nb-NO", ("no", "en"), "no"),
        ("nb-NO", ("no", "nb"), "nb"),
        ("nn", ("en", "no"), "no"),
        ("no", ("en", "nb"), "nb"),
        ("da", ("no", "nb"), None),
        ("und", ("en",), None),
        ("*", ("en",), None),
        ("-", ("en",), None),
        ("not a language at all", ("en",), None),
        # CLDR's parents: before the language alone
        ("es-MX", ("es-ES", "es-419"), "es-419"),
        ("es-MX", ("es", "es-419"), "es-419"),
        ("es-MX", ("es", "es-ES"), "es"),
        ("es-ES", ("es-419", "es"), "es"),
        ("pt-AO", ("pt-BR", "pt-PT"), "pt-PT"),
        ("pt-AO", ("pt", "pt-PT"), "pt-PT"),
        ("pt_MZ", ("pt", "en"), "pt"),
        ("en-IN", ("en-US", "en-001"), "en-001"),
        ("en-DE", ("en", "en-001"), "en-001"),
        ("en-DE", ("en-001", "en-150"), "en-150"),
        ("en-CA", ("en-001", "en"), "en"),
        ("zh-MO", ("zh-TW", "zh-HK"), "zh-HK"),
        ("zh-MO", ("zh-Hant", "zh-Hant-HK"), "zh-Hant-HK"),
        # The nearest of the same language and script
        ("de-CH", ("en", "de-DE"), "de-DE"),
        ("de-CH", ("de-AT", "de-DE", "de-LI"), "de-DE"),
        ("de-LU", ("de-LI", "de-AT"), "de-AT"),
        ("es-MX", ("es-ES", "es-AR"), "es-AR"),
        ("es-419", ("es-ES", "es-MX"), "es-MX"),
        ("es-ES", ("es-419",), "es-419"),
        ("pt-BR", ("pt-PT",), "pt-PT"),
        ("en-AU", ("en-US", "en-GB"), "en-GB"),
        ("en-PR", ("en-GB", "en-US"), "en-US"),
        ("fr-CH", ("fr-CA", "fr-FR"), "fr-FR"),
        ("ar-DZ", ("ar-SA", "ar-MA"), "ar-MA"),
        ("zh-HK", ("zh-CN", "zh-TW"), "zh-TW"),
        ("nb-NO", ("no-NO",), "no-NO"),
        ("no", ("nb-NO",), "nb-NO"),
        ("de-CH-1996", ("de-DE-u-co-phonebk",), "de-DE-u-co-phonebk"),
        # Never another language, nor another script
        ("zh-TW", ("zh-Hans", "zh-CN"), None),
        ("zh-CN", ("zh-TW",), None),
        ("sr-Latn-RS", ("sr-Cyrl-RS",), None),
        ("sr-RS", ("sr-Latn-BA",), None),
        ("nn-NO", ("nb-NO",), None),
        ("da", ("nb-NO",), None),
        ("uk-UA", ("ru-RU",), None),
        ("gsw-CH", ("de-CH",), None),
        ("pt-PT", ("es-ES", "gl-ES"), None),
        ("ja-Latn", ("ja-JP",), None),
        ("de-CH", ("x-de", "und", "", "nonsense!"), None),
    ],
)
def test_what_is_found(wanted: str, available: tuple[str, ...], expected: str | None) -> None:
    assert lookup(wanted, available) == expected


@pytest.mark.parametrize("wanted", [None, "", "x-klingon", "hu", "  "])
def test_without_a_language_of_its_own_a_device_gets_the_default(wanted: str | None) -> None:
    assert choose_language(wanted, "en", ("fr", "en")) == "en"
    assert choose_language(wanted, "en-AU", ("fr", "en")) == "en"
    assert choose_language(wanted, "de", ("fr", "en")) is None
    assert choose_language(wanted, None, ("fr", "en")) is None
    assert choose_language(wanted, "en", ()) is None


def test_a_tag_is_shortened_and_never_ends_in_a_single_letter() -> None:
    assert list(truncations("de-DE-u-co-phonebk")) == ["de-DE-u-co-phonebk", "de-DE-u-co", "de-DE", "de"]
    assert list(truncations("x-klingon")) == ["x-klingon"]


# Properties

TAGS = [
    "zh", "zh-TW", "zh-Hant", "zh-Hant-HK", "zh-Hans-SG", "iw", "he", "fr", "fr-CA", "fr-FR", "sr", "sr-Latn",
    "sr-Latn-RS", "sr-Cyrl-ME", "en", "en-US", "en-GB", "en-Latn-AU", "x-klingon", "i-klingon", "de", "de-CH",
    "de-CH-1996", "de-DE-u-co-phonebk", "pt", "pt-BR", "pt-PT", "no", "nb", "nn", "es-419", "es", "es-MX", "es-ES",
    "pt-AO", "en-001", "en-IN", "de-DE", "de-AT", "zh-MO", "nb-NO", "no-NO", "und", "mn-Mong",
]  # fmt: skip
tags = st.sampled_from(TAGS)
spellings = st.sampled_from([str.lower, str.upper, str.title, lambda tag: tag.replace("-", "_")])
offers = st.lists(tags, unique=True, max_size=6).map(tuple)


@unhurried
@given(tags, offers)
def test_what_is_found_was_offered(wanted: str, available: tuple[str, ...]) -> None:
    assert lookup(wanted, available) in {*available, None}


@unhurried
@given(tags, offers, spellings)
def test_spelling_makes_no_difference(wanted: str, available: tuple[str, ...], spell: object) -> None:
    assert callable(spell)
    spelled = spell(wanted)
    found, expected = lookup(spelled, available), lookup(wanted, available)
    assert (found is None) is (expected is None)
    assert found is None or expected is None or normalised(found) == normalised(expected)


@unhurried
@given(tags, offers)
def test_the_very_tag_wins(wanted: str, available: tuple[str, ...]) -> None:
    assert lookup(wanted, (*available, wanted)) == wanted


@unhurried
@given(tags, offers)
def test_a_shorter_form_of_the_tag_is_always_good_enough(wanted: str, available: tuple[str, ...]) -> None:
    """The rule of RFC 4647, section 3.4, without likely subtags: an offer that it finds is not missed."""
    shorter = set(truncations(normalised(wanted)))
    if any(normalised(tag) in shorter for tag in available):
        assert lookup(wanted, available) is not None


@unhurried
@given(tags, offers)
def test_what_is_found_is_of_the_same_language(wanted: str, available: tuple[str, ...]) -> None:
    found = lookup(wanted, available)
    if found is not None:
        languages = [normalised(tag).split("-")[0] for tag in (found, wanted)]
        assert len({"no" if language in NORWEGIAN else language for language in languages}) == 1


@unhurried
@given(tags, offers, tags)
def test_one_more_offer_never_makes_it_worse(wanted: str, available: tuple[str, ...], more: str) -> None:
    order = list(candidates(wanted))

    def rank(found: str | None) -> int:
        places = [place for place, tag in enumerate(order) if found and inherited(tag, (found,)) == found]
        return min(places, default=len(order))

    assert rank(lookup(wanted, (*available, more))) <= rank(lookup(wanted, available))


@unhurried
@given(tags, offers)
def test_what_is_near_is_written_in_the_same_script(wanted: str, available: tuple[str, ...]) -> None:
    found = lookup(wanted, available)
    if found is not None and inherited(wanted, available) is None:
        assert len({Language.get(normalised(tag)).maximize().script for tag in (found, wanted)}) == 1


@unhurried
@given(tags, offers, st.randoms())
def test_the_order_of_the_offers_makes_no_difference(wanted: str, available: tuple[str, ...], chance: Random) -> None:
    shuffled = list(available)
    chance.shuffle(shuffled)
    found, expected = lookup(wanted, tuple(shuffled)), lookup(wanted, available)
    assert (found and normalised(found)) == (expected and normalised(expected))


@unhurried
@given(tags, offers)
def test_the_default_is_for_those_whose_own_language_is_not_there(wanted: str, available: tuple[str, ...]) -> None:
    assert choose_language(wanted, "hu", (*available, "hu")) == (lookup(wanted, available) or "hu")


@unhurried
@given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=3).map(tuple))
def test_no_text_whatever_is_an_error(wanted: str, available: tuple[str, ...]) -> None:
    assert choose_language(wanted, "en", available) in {*available, None}
