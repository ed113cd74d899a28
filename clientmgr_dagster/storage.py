"""Where Dagster keeps its own data (`storage` in dagster.yaml): PostgreSQL, looked at now and then.

Dagster makes an instance for each evaluation of a sensor, with three storages, each with an engine of its own. Each
looks which tables there are, and asks at its first connection for the server's version, schema and types. That
was half of all statements of a system that has nothing to do.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagster import StringSource
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage, PostgresScheduleStorage
from sqlalchemy.engine import Connection, Engine

from clientmgr.base.sqlfiles import named_queries

LOOK_EVERY_S: Final = 300.0
"""After so long a new instance looks whether the tables are there, and makes them if somebody has dropped them."""


@dataclass(frozen=True, slots=True)
class _Known:
    """It keeps no connections, only what it has learned of the server: so threads and forks may share it."""

    engine: Engine
    looked_at: float


_NEWS: Final = named_queries("dagster/queries/news.sql")

_known: Final[dict[str, _Known]] = {}
"""By URL."""


class ScheduleStorage(PostgresScheduleStorage):
    """Dagster's own, but what is there need not be looked for again before each read of a sensor's state."""

    def __init__(self, postgres_url: str, *, should_autocreate_tables: bool) -> None:
        super().__init__(postgres_url, should_autocreate_tables)
        self._seen: set[str] = set()

    def has_instigators_table(self) -> bool:
        return "instigators" in self._seen or super().has_instigators_table()

    def _has_instigators_table(self, conn: Connection) -> bool:
        if "instigators" not in self._seen and super()._has_instigators_table(conn):
            self._seen.add("instigators")
        return "instigators" in self._seen

    def has_built_index(self, migration_name: str) -> bool:
        if migration_name not in self._seen and super().has_built_index(migration_name):
            self._seen.add(migration_name)
        return migration_name in self._seen


def _have_the_tables_tell(engine: Engine) -> None:
    """Of what is new in them: the daemon sleeps until it is told (clientmgr_dagster/daemon)."""
    with engine.connect() as connection:
        if not connection.exec_driver_sql(_NEWS["is_told"]).scalar_one():
            # All of its commands are one transaction: they are sent as one.
            connection.exec_driver_sql(_NEWS["tell"])


class Storage(DagsterPostgresStorage):
    """Dagster's own, but the instances of a process share an engine."""

    @classmethod
    def config_type(cls) -> Mapping[str, Any]:
        return {"postgres_url": StringSource}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "Storage":
        url, now = config_value["postgres_url"], time.monotonic()
        known = _known.get(url)
        is_fresh = known is not None and now - known.looked_at < LOOK_EVERY_S
        storage = cls(url, should_autocreate_tables=not is_fresh, inst_data=inst_data)
        if not is_fresh:
            _have_the_tables_tell(storage._run_storage._engine)
        if known is None or not is_fresh:
            known = _known[url] = _Known(storage._run_storage._engine, now)
        storage._schedule_storage = ScheduleStorage(url, should_autocreate_tables=False)
        # Dagster has no setting for it. The UI's server replaces them with pools of its own.
        storage._run_storage._engine = known.engine
        storage._event_log_storage._engine = known.engine
        storage._schedule_storage._engine = known.engine
        return storage
