"""BigQuery as dagster-gcp's resource, at a stand-in's endpoint too.

Only steps that need it import this (`resources.py`): dagster-gcp would add two seconds to the start of every run.
"""

import contextlib
from collections.abc import Iterator

from dagster_gcp import BigQueryResource
from google.cloud import bigquery
from pydantic import Field

from clientmgr.base.settings import Settings
from clientmgr.contact_deletions.bigquery import checked_project, stand_in_client


class DeletedContactsBigQuery(BigQueryResource):
    """Clients for the deleted contacts. Deadlines are the queries' own (`stored_result`)."""

    endpoint: str = Field("", description="URL of a BigQuery stand-in, which needs no credentials. Empty: Google's.")

    @classmethod
    def from_settings(cls, settings: Settings) -> "DeletedContactsBigQuery":
        return cls(project=settings.bigquery_project, endpoint=settings.bigquery_endpoint)

    @contextlib.contextmanager
    def get_client(self) -> Iterator[bigquery.Client]:
        """A client, closed in the end; dagster-gcp leaves its connections to the garbage collector."""
        # Not when the resource is made: a run makes all it may need before its first step.
        project = checked_project(self.project)
        if self.endpoint:
            with contextlib.closing(stand_in_client(project, self.endpoint)) as client:
                yield client
        else:
            with super().get_client() as client, contextlib.closing(client):
                yield client
