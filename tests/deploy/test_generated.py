"""What is made from the registry of daemons is current."""

from tests.deploy.files import DEPLOY, MANIFESTS, SYSTEMD
from tools.deploy import generated
from tools.deploy.kubernetes import WRITTEN_BY_HAND


def test_what_is_made_from_the_registry_is_current() -> None:
    stale = [
        path.relative_to(DEPLOY).as_posix()
        for path, text in generated().items()
        if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "run `make deploy-files`"


def test_no_file_is_left_of_a_daemon_that_is_no_more() -> None:
    made = {path.name for path in generated()}
    by_hand = {
        *WRITTEN_BY_HAND,
        "secret.example.yaml",
        "clientmgr-migrate.service",
        "client-manager.env",
        "migrate.env",
    }
    there = [*MANIFESTS, *SYSTEMD.glob("*.service"), *(SYSTEMD / "env").glob("*.env")]
    assert {path.name for path in there} - made - by_hand == set()
