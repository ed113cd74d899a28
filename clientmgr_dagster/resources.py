"""The resources of assets and sensors. Settings come from the environment, as everywhere."""

import functools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import dagster as dg

from clientmgr.base.data_folder import attach
from clientmgr.base.database import Database
from clientmgr.base.settings import Settings, load_settings
from clientmgr.broker.postgres.cursor_reader import CursorReader
from clientmgr.tenants.schema_manager import TenantSchemaManager

if TYPE_CHECKING:
    from google.cloud import bigquery


class TenantsResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The tenant registry and the schemas behind it."""

    @functools.cached_property
    def settings(self) -> Settings:
        return attach(load_settings())

    @functools.cached_property
    def database(self) -> Database:
        return Database.from_settings(self.settings)

    def schema_manager(self) -> TenantSchemaManager:
        return TenantSchemaManager(self.database, self.settings)

    def cursor_reader(self, topic: str) -> CursorReader:
        return CursorReader(self.database, self.settings, topic)


class BigQueryClients(Protocol):
    """What assets see of dagster-gcp's `BigQueryResource`: they can't name a class that is imported late."""

    def get_client(self) -> "AbstractContextManager[bigquery.Client]": ...


@dg.resource(description="BigQuery with the deleted contacts: dagster-gcp's resource, by our settings.")
def bigquery_resource(_context: dg.InitResourceContext) -> BigQueryClients:
    # Imported late, by the steps that ask BigQuery: it takes two seconds, which every other run would pay too.
    from clientmgr_dagster.bigquery import DeletedContactsBigQuery

    return DeletedContactsBigQuery.from_settings(load_settings())
