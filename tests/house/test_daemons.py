"""The registry of daemons says what their code does: settings, database roles and metrics, as the source has them."""

import subprocess
import sys

import pytest

from clientmgr.base.database import Role
from clientmgr.contracts import daemons
from clientmgr.contracts.daemon_entry import DaemonEntry
from clientmgr.contracts.handing_out import LOGIN_SETTINGS, settings_of
from tests.house.source_code import has_metrics, reachable, roles_taken, settings_read

IMPORTED_FOR_SOMETHING_ELSE = {
    # `live` runs the writer of positions in the same process; broadcast alone never does.
    "broadcast": {"streaming.live.telemetry.writer"},
    # Flippers are set with an audit entry; the device mapper only reads them.
    "device-mapper": {"clientmgr.audit.log"},
    "dashboard": {
        # It asks Redis about the stream's groups and is no member of one.
        "clientmgr.live.redis_stream",
        # It explains what the device mapper would send and replays single messages: that is no traffic to count.
        "clientmgr.sending.metrics",
        "clientmgr.broker.message_metrics",
    },
    # Only an exception of it is used.
    "bridge": {"clientmgr.broker.pubsub.resources"},
}
READ_FOR_SOMETHING_ELSE = {
    # All logins are read in one place; each daemon is handed those of its roles.
    "": {"DATABASE_URL", *LOGIN_SETTINGS.values()},
    # The policy is read as a whole; only the excluded customers are looked at.
    "dashboard": {
        "ORPHAN_ATTEMPTS",
        "ORPHAN_BATCH_SIZE",
        "ORPHAN_DRY_RUN",
        "ORPHAN_GUARD_MINIMUM",
        "ORPHAN_MAX_SHARE",
        "ORPHAN_THRESHOLD_DAYS",
    },
}

NAMES_ALL_ROLES = {
    "clientmgr.base.database",
    "clientmgr.base.logins",
    "clientmgr.contracts.daemons",
    # For programs that use the log as a library, on a database of their own. No daemon does.
    "clientmgr.broker.library.own_database",
}

each_daemon = pytest.mark.parametrize("entry", daemons.ALL, ids=lambda entry: str(entry.name))


def code_of(entry: DaemonEntry) -> set[str]:
    return reachable(entry.code, but_not=IMPORTED_FOR_SOMETHING_ELSE.get(entry.name, ()))


def read_by(entry: DaemonEntry) -> set[str]:
    read = set().union(*(settings_read(module) for module in code_of(entry)))
    return read - READ_FOR_SOMETHING_ELSE[""] - READ_FOR_SOMETHING_ELSE.get(entry.name, set())


@each_daemon
def test_every_setting_that_a_daemon_reads_is_in_its_entry(entry: DaemonEntry) -> None:
    assert read_by(entry) - settings_of(entry) == set()


@each_daemon
def test_no_entry_names_a_setting_that_its_daemon_does_not_read(entry: DaemonEntry) -> None:
    assert set(entry.settings) - read_by(entry) == set()


@each_daemon
def test_an_entry_names_the_roles_that_its_daemon_takes(entry: DaemonEntry) -> None:
    taken = set().union(*(roles_taken(module) for module in code_of(entry) - NAMES_ALL_ROLES))
    taken &= {role.name for role in Role}  # the dashboard's users have roles too
    assert taken == {role.name for role in entry.roles}


@each_daemon
def test_an_entry_names_every_module_whose_metrics_its_daemon_serves(entry: DaemonEntry) -> None:
    assert {module for module in code_of(entry) if has_metrics(module)} == {
        name.partition(":")[0] for name in entry.metrics
    }


def test_the_transport_s_settings_are_those_that_it_reads() -> None:
    (writer,) = [entry for entry in daemons.ALL if entry.name == "writer"]
    assert set(daemons.TRANSPORT_SETTINGS) <= read_by(writer)


def test_asking_for_help_imports_no_daemon() -> None:
    code = (
        "import sys; from clientmgr.cli import app; "
        "sys.exit(' '.join(name for name in sys.modules if name.startswith('streaming.')) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
