"""What the dashboard's tests look at: a running dashboard, tenants with a past, and mischief in every stored field."""

import asyncio
import functools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from clientmgr.base.customer_ids import CustomerId, quoted_schema
from clientmgr.base.database import Database, Role
from clientmgr.base.settings import Settings
from clientmgr.broker.factory import open_broker
from clientmgr.broker.interface import Message
from clientmgr.contracts import topics
from clientmgr.tenants.schema_manager import TenantSchemaManager
from clientmgr_dashboard.access.authentication import COOKIE
from clientmgr_dashboard.access.users import Role as UserRole
from clientmgr_dashboard.access.users import user_line
from clientmgr_dashboard.server import serve_until_stopped
from streaming import writer
from streaming.runtime.daemon import consume_on
from tests.streaming.rig import event
from tests.web_server import served_in_thread

BUSY, QUIET = 1001, 1002
CONTACT = 42
SECRET = "token-that-nobody-may-see-0123456789"
MISCHIEF = """"'><script>window.hacked=1</script><img src=x onerror="window.hacked=1">{{7*7}}"""
PASSWORDS = {"vera": "viewer-password", "otto": "operator-password"}
NIGHTS = 40
_CSRF = re.compile(r'name="csrf_token" value="([^"]+)"')


@dataclass(frozen=True)
class House:
    """A database with something in it, and what it takes to look at it and change it."""

    settings: Settings
    database: Database

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.database.connect(Role.OWNER, autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def publish_and_write(self, *messages: dict[str, Any] | bytes) -> None:
        """Publish device events and let the writer do its work."""

        async def run() -> None:
            async with open_broker(self.settings, self.database) as broker:
                await broker.ensure_topic(topics.WRITER)
                await broker.ensure_subscription(topics.WRITER, topics.WRITER)
                bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
                if bodies:
                    await broker.publish(topics.WRITER, [Message(body, str(BUSY)) for body in bodies])
                await consume_on(broker, writer.DAEMON, self.settings, asyncio.Event(), burst=True)

        asyncio.run(run())

    def dead_letter(self, payload: bytes, *, error: str = "it broke", tenant: str = str(BUSY), key: str = "c9") -> int:
        """A letter of the writer's subscription."""
        ((number,),) = self.query(
            """INSERT INTO clientmgr.dead_letter_queue (group_id, topic_id, c_offset, partition_id, host_id, user_id,
                transaction_id, payload, attributes, error_class, exception, attempts, published_at)
            SELECT %s, id, (SELECT coalesce(max(c_offset), 1000000) + 1 FROM clientmgr.dead_letter_queue), 0, %s, %s,
                gen_random_uuid(), %s, %s, %s, %s, 3, now() FROM clientmgr.log_counter WHERE topic = %s
            RETURNING id""",
            topics.WRITER,
            tenant,
            key,
            payload,
            json.dumps({"note": MISCHIEF}),
            MISCHIEF if error == MISCHIEF else "SomeError",
            error,
            topics.WRITER,
        )
        return int(number)

    def devices(self, customer: int = BUSY) -> list[str]:
        rows = self.query(f"SELECT client_id FROM {quoted_schema(CustomerId(customer))}.devices ORDER BY client_id")
        return [client_id for (client_id,) in rows]

    def audited(self, action: str) -> list[tuple[int, str, str, dict[str, Any]]]:
        """(customer, actor, outcome, details), the newest last"""
        return [
            (row[0], row[1], row[2], row[3])
            for row in self.query(
                "SELECT customer_id, actor, outcome, details FROM clientmgr.audit_log WHERE action = %s"
                " ORDER BY recorded_at, seq",
                action,
            )
        ]


def furnish(house: House) -> None:
    """Tenants, devices, a past, and mischief."""
    TenantSchemaManager(house.database, house.settings).activate([BUSY, QUIET], actor=MISCHIEF)
    house.publish_and_write(
        event("registered", customer=BUSY, client="c1", platform="ios", deviceModel="iPhone", language="fr"),
        event("pushTokenSet", customer=BUSY, client="c1", pushToken=SECRET, kind="apns"),
        event("contactLinked", customer=BUSY, client="c1", contactId=CONTACT),
        event(
            "registered",
            customer=BUSY,
            client=MISCHIEF,
            application=MISCHIEF,
            platform=MISCHIEF,
            deviceModel=MISCHIEF,
            hardwareId=MISCHIEF,
            applicationVersion=MISCHIEF,
            osVersion=MISCHIEF,
            timezone=MISCHIEF,
            attributes={MISCHIEF: MISCHIEF},
        ),
        event("contactLinked", customer=BUSY, client=MISCHIEF, application=MISCHIEF, contactId=CONTACT),
        {"customerId": MISCHIEF, "pushToken": SECRET},
    )
    _count(house, BUSY)
    house.query(
        "UPDATE clientmgr.dashboard_tenant_metrics SET sync_status = 'differs', sync_difference_share = 0.2,"
        " sync_sampled = 100, sync_different = 20, sync_different_fields = %s, sync_differences = %s, failure = %s"
        " WHERE customer_id = %s",
        json.dumps({MISCHIEF: 20}),
        json.dumps(
            [{"application_code": MISCHIEF, "client_id": MISCHIEF, "difference": "differs", "fields": [MISCHIEF]}]
        ),
        MISCHIEF,
        BUSY,
    )
    house.query(
        "INSERT INTO clientmgr.flippers (name, customer_id, enabled, updated_by) VALUES"
        " ('USE_POSTGRES_DEVICE_MAPPER', NULL, true, 'test'),"
        " ('CLIENT_FETCHER_FALLBACK_DISABLED_PER_CUSTOMER', NULL, true, 'test')"
    )
    house.query("INSERT INTO clientmgr.flippers VALUES ('OLD_ONE', %s, true, %s)", BUSY, MISCHIEF)
    house.query("INSERT INTO clientmgr.applications VALUES (%s, %s, %s, ARRAY[%s], %s, %s)", BUSY, *[MISCHIEF] * 5)
    house.query("INSERT INTO clientmgr.orphan_exclusions VALUES (%s, %s, %s)", QUIET, MISCHIEF, MISCHIEF)
    house.query(
        "INSERT INTO clientmgr.orphan_deletion_results (run_id, customer_id, outcome, error)"
        " VALUES ('r', %s, 'failed', %s)",
        BUSY,
        MISCHIEF,
    )
    house.dead_letter(MISCHIEF.encode(), error=MISCHIEF, tenant=MISCHIEF, key=MISCHIEF)


def _count(house: House, customer: int) -> None:
    """Every night's collection, as Dagster leaves it."""
    nights = [
        _counted(customer, datetime.now(UTC) - timedelta(days=night), 1000 + 10 * (NIGHTS - night))
        for night in range(NIGHTS, -1, -1)
    ]
    columns, places = ", ".join(nights[0]), ", ".join(["%s"] * len(nights[0]))
    with house.database.connect(Role.OWNER) as connection:
        for table, collections in (
            ("dashboard_tenant_metrics", nights[-1:]),
            ("dashboard_tenant_metrics_history", nights),
        ):
            statement = f"INSERT INTO clientmgr.{table} ({columns}) VALUES ({places})"
            connection.cursor().executemany(statement.encode(), [list(one.values()) for one in collections])


def _counted(customer: int, at: datetime, devices: int) -> dict[str, Any]:
    return {
        "customer_id": customer,
        "collected_at": at,
        "run_id": MISCHIEF,
        "status": "ok",
        "schema_version": 1,
        "devices": devices,
        "devices_by_platform": json.dumps({"ios": devices // 2, "android": devices // 3, MISCHIEF: 5}),
        "devices_by_provider": json.dumps({"apple": devices}),
        "push_enabled": devices // 2,
        "push_enabled_share": 0.5,
        "tokens_valid": devices // 2,
        "tokens_invalid": 10,
        "tokens_none": 5,
        "tokens_superseded": 1,
        "tokens_valid_share": 0.5,
        "tokens_invalid_share": 0.1,
        "tokens_none_share": 0.3,
        "contacts": devices // 2,
        "linked_devices": devices // 2,
        "without_contact": 7,
        "orphans": 3,
        "created_24h": 10,
        "created_7d": 70,
        "growth_24h": 10,
        "growth_7d": 70,
        "last_write_at": at,
        "table_bytes": 123_456_789,
        "sync_status": "not checked",
    }


class Visit(httpx.Client):
    """Somebody with a browser, as far as HTTP goes: keeps cookies, fills in the token of the page it was on."""

    def see(self, path: str, *, status: int = 200) -> str:
        answer = self.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-600:])
        return answer.text

    @property
    def token(self) -> str:
        # A page with a form in it.
        found = _CSRF.search(self.get("/devices").text)
        assert found is not None
        return found[1]

    def submit(self, path: str, fields: dict[str, Any], **options: Any) -> httpx.Response:
        """Send a form of ours."""
        return self.post(path, data={"csrf_token": self.token, **fields}, **options)


def hidden(page: str) -> dict[str, list[str]]:
    """The hidden fields of a page's last form."""
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page[page.rindex("<form") :]):
        fields.setdefault(name, []).append(value)
    fields.pop("csrf_token", None)
    return fields


@contextmanager
def serving(settings: Settings, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[str]:
    """A dashboard on a free port, in a thread; gone at the end. Gives its address."""
    with served_in_thread(serve_until_stopped, settings, loop) as address:
        yield address


def sign_in(address: str, name: str) -> str:
    """The cookie of a new session."""
    answer = httpx.post(f"{address}/sign-in", data={"name": name, "password": PASSWORDS[name]})
    assert answer.status_code == 303, answer.text
    return answer.cookies[COOKIE]


@functools.cache
def _user_lines() -> list[str]:
    """Made once: a new salt is a changed user, whose sessions end on all dashboards of the database."""
    roles = {"vera": UserRole.VIEWER, "otto": UserRole.OPERATOR}
    # Passwords that are quick to guess: nobody tries here.
    return [user_line(name, roles[name], password, cost=2**10) for name, password in PASSWORDS.items()]


def write_users(folder: Path) -> Path:
    file = folder / "users"
    file.write_text("# who may sign in\n\n" + "\n".join(_user_lines()) + "\n")
    file.chmod(0o600)
    return file
