"""Applications' configuration: what may be set, by whom, that each change is audited, and how soon a daemon follows."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec import UNSET

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.database import Database, Role
from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings
from clientmgr.tenants.applications import ApplicationCache, ApplicationChange
from clientmgr.tenants.schema_manager import TenantSchemaManager
from tests.cli.calling import Cli

CUSTOMER, OTHER = CustomerId(7), CustomerId(8)
APP = "EMS11-C3FD3"


@pytest.fixture
def cli(database: Database, settings_for: Callable[[Database], Settings], tmp_path: Path) -> Cli:
    TenantSchemaManager(database, settings_for(database)).activate([CUSTOMER, OTHER], actor="test")
    return Cli.on(database, tmp_path)


def test_what_is_set_stays_until_it_is_set_again_cleared_or_removed(cli: Cli) -> None:
    assert "is configured" in cli.ok("applications", "set", APP, "-c", "7", "--apple-topic", "com.acme.app").out
    cli.ok(
        "applications",
        "set",
        APP,
        "-c",
        "7",
        "--web-origin",
        "https://b.acme.com",
        "--web-origin",
        "https://a.acme.com",
    )
    cli.ok("applications", "set", APP, "-c", "7", "--default-language", "de_ch")
    cli.ok("applications", "set", "OTHER", "-c", "8", "--apple-topic", "com.other")
    (listed,) = cli.ok("applications", "list", "-c", "7", "--json").json
    shown = cli.ok("applications", "show", APP, "-c", "7", "--json").json
    assert listed == shown
    assert (shown["apple_topic"], shown["default_language"]) == ("com.acme.app", "de-CH")
    assert shown["web_origins"] == ["https://a.acme.com", "https://b.acme.com"]
    assert len(cli.ok("applications", "list", "--json").json) == 2

    cli.ok("applications", "set", APP, "-c", "7", "--clear", "apple-topic", "--clear", "web-origins")
    shown = cli.ok("applications", "show", APP, "-c", "7", "--json").json
    assert (shown["apple_topic"], shown["web_origins"], shown["default_language"]) == (None, [], "de-CH")
    assert "no configuration any more" in cli.ok("applications", "remove", APP, "-c", "7").out
    assert "had no configuration" in cli.ok("applications", "remove", APP, "-c", "7").out
    assert cli("applications", "show", APP, "-c", "7").code == 1


def test_each_change_is_audited_and_nothing_else_is(cli: Cli) -> None:
    for _ in range(2):
        cli.ok("applications", "set", APP, "-c", "7", "--apple-topic", "com.acme.app")
    cli.ok("applications", "set", APP, "-c", "7", "--clear", "apple-topic")
    cli.ok("applications", "remove", APP, "-c", "7")
    rows = cli.ok("audit", "list", "--customer", "7", "--json").json
    changes = [(row["action"], row["details"]) for row in reversed(rows) if row["action"].startswith("application.")]
    assert changes == [
        ("application.set", {"application": APP, "appleTopic": "com.acme.app"}),
        ("application.set", {"application": APP, "appleTopic": None}),
        ("application.removed", {"application": APP}),
    ]
    assert "intact" in cli.ok("audit", "verify").out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--apple-topic", ""], "appleTopic"),
        (["--apple-topic", "com acme"], "appleTopic"),
        (["--web-origin", "https://acme.com/page"], "webOrigins"),
        (["--web-origin", "*"], "webOrigins"),
        (["--default-language", "not a language"], "defaultLanguage"),
        (["--apple-topic", "com.acme", "--clear", "apple-topic"], "--clear"),
        ([], "appleTopic, webOrigins, defaultLanguage"),
    ],
)
def test_what_may_not_be_is_refused_by_field(cli: Cli, options: list[str], named: str) -> None:
    result = cli("applications", "set", APP, "-c", "7", *options)
    assert (result.code, named in result.err) == (2, True), result.err
    assert cli.ok("applications", "list", "--json").json == []


def test_a_customer_that_there_is_not_and_a_code_that_can_not_be_are_refused(cli: Cli) -> None:
    assert cli("applications", "set", APP, "-c", "4711", "--apple-topic", "com.acme").code == 1
    assert cli("applications", "set", "", "-c", "7", "--apple-topic", "com.acme").code == 2
    assert cli("applications", "set", "ä" * 257, "-c", "7", "--apple-topic", "com.acme").code == 2


def test_the_reader_can_not_change_it(cli: Cli, database: Database) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege), database.connect(Role.READER) as connection:
        connection.execute("DELETE FROM clientmgr.applications")


def test_it_goes_with_the_account(cli: Cli) -> None:
    for customer in ("7", "8"):
        cli.ok("applications", "set", APP, "-c", customer, "--apple-topic", "com.acme.app")
    cli.ok("tenants", "delete", "7", "--yes")
    assert [row["customer_id"] for row in cli.ok("applications", "list", "--json").json] == [8]


@pytest.mark.anyio
async def test_a_daemon_follows_once_its_copy_is_old_enough_and_asks_no_sooner(cli: Cli, database: Database) -> None:
    patient, impatient = ApplicationCache(3_600_000), ApplicationCache(0)
    key, unknown = (CUSTOMER, APP), (OTHER, APP)
    async with await database.connect_async(Role.WRITER, autocommit=True) as connection:
        for cache in (patient, impatient):
            assert not await cache.current(connection, [key, unknown])
        cli.ok("applications", "set", APP, "-c", "7", "--apple-topic", "com.acme.app")
        assert not await patient.current(connection, [key])
        assert {
            one: found.apple_topic for one, found in (await impatient.current(connection, [key, unknown])).items()
        } == {key: "com.acme.app"}


# Without a database


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("https://www.acme.com", "https://www.acme.com"),
        ("HTTPS://WWW.Acme.com/", "https://www.acme.com"),
        ("https://acme.com:443", "https://acme.com"),
        ("https://acme.com:8443", "https://acme.com:8443"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ],
)
def test_an_origin_is_kept_as_browsers_spell_it(written: str, stored: str) -> None:
    assert ApplicationChange(web_origins=[written, written]).checked() == {"web_origins": [stored]}


@pytest.mark.parametrize(
    "origin",
    ["http://acme.com", "acme.com", "null", "https://", "https://user@acme.com", "https://acme.com?x", "https://a..b",
     "https://acme.com:0", "https://acme.com:65536", "https://bücher.example", "https://*.acme.com", "ftp://acme.com",
     "https://acme.com\n", "https://-a.com", "https://" + "a" * 64 + ".com"],
)  # fmt: skip
def test_what_is_no_origin_that_a_browser_could_send_is_refused(origin: str) -> None:
    with pytest.raises(InvalidInputError, match="webOrigins"):
        ApplicationChange(web_origins=[origin]).checked()


@pytest.mark.parametrize("language", ["", "und", "de-", "deutsch", "e" * 200, "mul", "de\0"])
def test_what_is_no_language_is_refused(language: str) -> None:
    with pytest.raises(InvalidInputError, match="defaultLanguage"):
        ApplicationChange(default_language=language).checked()


def test_what_is_absent_is_not_set() -> None:
    assert ApplicationChange().checked() == {}
    assert ApplicationChange(apple_topic=None, web_origins=UNSET).checked() == {"apple_topic": None}
