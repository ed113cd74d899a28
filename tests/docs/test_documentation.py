"""The documentation is as the code is."""

import json
from pathlib import Path

import pytest

from clientmgr.base.settings import Settings
from clientmgr.cli.run import app as run_app
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.local.processes.programs import own_commands
from tests.docs.links import anchors_of, broken_links
from tools.docs import DOCS, ROOT, generated, messages, page_of
from tools.docs.daemon_facts import publishes_to, reads_from
from tools.docs.messages import Carried
from tools.docs_site import HOME, NAVIGATION
from tools.screenshots import SHOTS

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]
IMAGE_BYTES = 200_000


@pytest.fixture(scope="module")
def current() -> dict[Path, str]:
    return generated()


def test_what_is_made_from_the_code_is_current(current: dict[Path, str]) -> None:
    stale = [path.name for path, text in current.items() if not path.exists() or path.read_text() != text]
    assert not stale, "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_every_setting_is_documented() -> None:
    text = (DOCS / "settings.md").read_text()
    assert [name for name in Settings.model_fields if f"| `{name.upper()}` |" not in text] == []


def test_every_daemon_has_a_page() -> None:
    commands = {command.name for command in run_app.registered_commands} | {"pubsub-gateway", "bridge"}
    assert commands <= {entry.name for entry in daemons.ALL}
    for entry in daemons.ALL:
        headings = anchors_of(DOCS / "daemons" / f"{entry.name}.md")
        assert headings == {entry.name, "when-something-fails", "scaling", "settings", "metrics"}, entry.name


@pytest.mark.parametrize("entry", daemons.ALL, ids=lambda entry: str(entry.name))
def test_a_page_says_what_happens_when_something_fails_and_how_the_daemon_scales(entry: DaemonEntry) -> None:
    """`make docs` begins a new daemon's page with these sections empty."""
    _, _, rest = page_of(entry).read_text().partition("## When something fails\n")
    failing, _, rest = rest.partition("## Scaling\n")
    scaling, _, _ = rest.partition("## Settings\n")
    assert failing.strip()
    assert scaling.strip()


def test_a_daemon_is_documented_with_settings_that_there_are() -> None:
    for entry in daemons.ALL:
        assert {name for name in entry.settings if name.lower() not in Settings.model_fields} == set(), entry.name


def test_whatever_up_runs_is_documented() -> None:
    for command in own_commands():
        assert daemons.entry_of_process(command.name)


def test_every_topic_that_a_daemon_knows_is_in_the_catalogue() -> None:
    of_daemons = {
        topic
        for entry in daemons.ALL
        if entry.judged_by == "unread messages"
        for topic in [*reads_from(entry), *publishes_to(entry)]
    }
    assert of_daemons <= {carried.topic for carried in messages.ALL}


@pytest.mark.parametrize(
    "carried", [carried for carried in messages.ALL if carried.decode], ids=lambda carried: str(carried.topic)
)
def test_an_example_is_what_its_reader_accepts(carried: Carried) -> None:
    assert carried.decode is not None
    carried.decode(json.dumps(carried.example).encode())


def test_every_message_has_an_example() -> None:
    assert [one.topic for one in messages.ALL if one.struct is not None and one.example is None] == []


def test_every_image_is_taken_by_the_script() -> None:
    names = [shot.name for shot in SHOTS]
    assert len(set(names)) == len(names)
    assert {image.stem for image in (DOCS / "images").glob("*")} <= set(names)
    for shot in SHOTS:
        assert shot.page.format(dagster="d:", live="l:", dashboard="b:").startswith(("d:/", "l:/", "b:/"))


def test_images_are_small_and_shown_somewhere() -> None:
    text = "".join(page.read_text() for page in PAGES)
    for image in sorted((DOCS / "images").glob("*")):
        assert image.suffix == ".png"
        assert image.stat().st_size < IMAGE_BYTES, f"{image.name} is too large"
        assert f"images/{image.name})" in text, f"{image.name} is shown nowhere"


def test_every_page_has_a_place_in_the_site() -> None:
    patterns = [pattern for patterns in NAVIGATION.values() for pattern in patterns if pattern != HOME]
    placed = {page for pattern in patterns for page in ROOT.glob(pattern)}
    assert placed | {ROOT / "README.md"} == set(PAGES)
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern))] == []
