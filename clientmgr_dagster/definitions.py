"""The code location: everything that `defs/` holds, with the resources that tests replace.

Nothing is listed here. A definition is found where a module of `defs/` has it as a variable, by itself or in a list.
What is in a tuple, or made by `@dg.definitions`, is not found: `tests/dagster/test_definitions.py` knows all the names.
"""

import functools
import warnings
from collections.abc import Iterator
from types import ModuleType

import dagster as dg

from clientmgr.base.logs import log_to_stdout
from clientmgr_dagster import defs as our_defs
from clientmgr_dagster.catalogue import describing
from clientmgr_dagster.policies import AS_LONG_AS_WANTED, freshness_by
from clientmgr_dagster.resources import TenantsResource, bigquery_resource
from clientmgr_dagster.runs.executor import watched_executor
from clientmgr_dagster.spark.session import SparkResource

log_to_stdout()


def build_definitions(*more: ModuleType, **resources: object) -> dg.Definitions:
    """The definitions of `defs/` and of `more` packages like it, with any resource replaced by name."""
    shared = dg.Definitions(
        resources={
            "tenants": TenantsResource(),
            "spark": SparkResource(),
            "bigquery": bigquery_resource,
            **resources,
        },
        # A process per step would be a JVM per step.
        executor=watched_executor,
    )
    with warnings.catch_warnings():
        # Dagster calls its loader and its mapping previews. Its version is pinned, and a test knows what to find.
        warnings.simplefilter("ignore", category=dg.PreviewWarning)
        found = [dg.load_definitions_from_package_module(package) for package in (our_defs, *more)]
        everything = dg.Definitions.merge(shared, *found)
        described = everything.map_resolved_asset_specs(func=describing(everything))
        for selection, policy in _rhythms(everything):
            late_after = functools.partial(dg.apply_freshness_policy, policy=policy)
            described = described.map_resolved_asset_specs(func=late_after, selection=selection)
        return described


def _rhythms(definitions: dg.Definitions) -> Iterator[tuple[dg.AssetSelection, dg.FreshnessPolicy]]:
    """The assets that some schedule computes again and again, and when they are late."""
    for schedule in definitions.schedules or ():
        job = schedule.job
        # A job that is made of ops selects no assets.
        if not isinstance(job, dg.JobDefinition) and not AS_LONG_AS_WANTED.items() <= (job.tags or {}).items():
            cron_schedule = str(schedule.cron_schedule)  # type: ignore[union-attr]  # ours have one
            yield job.selection, freshness_by(cron_schedule)


defs = build_definitions()
