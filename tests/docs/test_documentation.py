"""The documentation is as the code is."""

import json
from pathlib import Path

import pytest

from clientmgr.base.settings import Settings
from clientmgr.cli.run import app as run_app
from clientmgr.local.processes.programs import own_commands
from tests.docs.links import anchors_of, broken_links
from tools.docs import DOCS, ROOT, daemon_facts, generated, messages
from tools.docs.messages import Carried
from tools.screenshots import SHOTS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
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
    assert commands <= {facts.name for facts in daemon_facts.ALL}
    for facts in daemon_facts.ALL:
        headings = anchors_of(DOCS / "daemons" / f"{facts.name}.md")
        assert headings == {facts.name, "when-something-fails", "scaling", "settings", "metrics"}, facts.name


def test_a_daemon_is_documented_with_settings_that_there_are() -> None:
    for facts in daemon_facts.ALL:
        named = {*facts.settings, facts.port_setting}
        assert {name for name in named if name.lower() not in Settings.model_fields} == set(), facts.name


def test_whatever_up_runs_is_documented() -> None:
    for command in own_commands():
        assert daemon_facts.facts_of_program(command.name)


def test_every_topic_that_a_daemon_knows_is_in_the_catalogue() -> None:
    of_daemons = {
        topic for facts in daemon_facts.ALL if facts.on_loop for topic in [*facts.reads_from(), *facts.publishes_to()]
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
