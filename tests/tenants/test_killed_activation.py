"""An activation that is killed half-way leaves whole tenants or none, and the next one finishes the work."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from clientmgr.base.settings import Settings
from clientmgr.tenants.schema_manager import Change, TenantSchemaManager

TENANTS = 60

ACTIVATE = f"""
from clientmgr.base.database import Database
from clientmgr.base.settings import load_settings
from clientmgr.tenants.schema_manager import TenantSchemaManager
settings = load_settings()
TenantSchemaManager(Database.from_settings(settings), settings).activate(range(1, {TENANTS + 1}), actor="killed")
"""


def test_sigkill_during_activation_leaves_no_half_tenant(
    manager: TenantSchemaManager, settings: Settings, query: Callable[..., list[tuple[Any, ...]]]
) -> None:
    process = subprocess.Popen([sys.executable, "-c", ACTIVATE], env=settings.environment())
    deadline = time.monotonic() + 60
    while query("SELECT count(*) FROM clientmgr.tenants WHERE status = 'active'")[0][0] < 5:
        assert time.monotonic() < deadline
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_backends_are_gone(query)

    active = {row[0] for row in query("SELECT customer_id FROM clientmgr.tenants WHERE status = 'active'")}
    schemas = {int(row[0][7:]) for row in query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tenant\\_%%'")}
    audited = {row[0] for row in query("SELECT customer_id FROM clientmgr.audit_log WHERE outcome = 'created'")}
    assert active == schemas == audited
    assert 5 <= len(active) < TENANTS, "killed too late to show anything"

    changes = [result.change for result in manager.migrate(actor="next")]

    assert changes == [Change.CREATED] * (TENANTS - len(active))
    assert query("SELECT count(*) FROM clientmgr.tenants WHERE status = 'active'") == [(TENANTS,)]


def wait_until_backends_are_gone(query: Callable[..., list[tuple[Any, ...]]]) -> None:
    deadline = time.monotonic() + 30
    others = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    while query(others) != [(0,)]:
        assert time.monotonic() < deadline
