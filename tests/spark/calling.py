"""Dagster's definitions called as functions. Their types say that anything may come back; here it is said what does."""

from collections.abc import Callable
from typing import Any

import dagster as dg

from clientmgr_dagster.resources import TenantsResource


def passes(check: Callable[..., object]) -> bool:
    """Whether an asset check passes now."""
    result = check(TenantsResource())
    assert isinstance(result, dg.AssetCheckResult)
    return result.passed


def requests_of(schedule: Any, context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest | dg.SkipReason]:
    """What a schedule asks for."""
    return list(schedule(context))
