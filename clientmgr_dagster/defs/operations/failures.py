"""Reports every run that failed: in the log, and to a webhook if one is set. It sees each run once."""

import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import dagster as dg
import msgspec

from clientmgr.base.logs import get_logger
from clientmgr.operations.dagster_addresses import ui_url
from clientmgr_dagster.automation import SENSORS
from clientmgr_dagster.resources import TenantsResource

log = get_logger(__name__)

ATTEMPTS = 3
ANSWER_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class FailedRun:
    """What a person on call wants to know first."""

    job: str
    run_id: str
    partition: str
    error: str
    comes_again: bool
    """Dagster starts the run again by itself."""
    url: str

    def sentence(self) -> str:
        of = f" of {self.partition}" if self.partition else ""
        again = ", it is tried again" if self.comes_again else ""
        return f"{self.job}{of} failed{again}: {self.error} ({self.url})"


@dg.run_failure_sensor(
    name="run_failure_sensor",
    default_status=SENSORS,
    description="Logs each failed run and tells ALERT_WEBHOOK_URL of it.",
)
def run_failure_sensor(context: dg.RunFailureSensorContext, tenants: TenantsResource) -> None:
    """A webhook that does not answer only causes a warning: the failure itself is in the log by then."""
    settings = tenants.settings
    failed = describe(
        context.dagster_run,
        context.failure_event.message or "",
        context.get_step_failure_events(),
        ui=ui_url(settings),
    )
    log.error("run failed", **asdict(failed))
    if url := settings.alert_webhook_url.get_secret_value():
        notify(url, failed)


def describe(run: dg.DagsterRun, message: str, failed_steps: Sequence[dg.DagsterEvent], *, ui: str) -> FailedRun:
    """The run in a few words. Where steps failed, it says why."""
    tags = run.tags
    causes = [_cause(step) for step in failed_steps if step.step_failure_data.error is not None]
    first, last = tags.get("dagster/asset_partition_range_start"), tags.get("dagster/asset_partition_range_end")
    of_a_range = f"{first} … {last}" if first else ""
    return FailedRun(
        # A run of assets has no name that anybody gave it.
        job=", ".join(sorted(step.step_key or "" for step in failed_steps)) or run.job_name,
        run_id=run.run_id,
        partition=tags.get("dagster/partition") or tags.get("clientmgr/customer_id") or of_a_range,
        error="; ".join(causes) or message,
        comes_again=tags.get("dagster/will_retry") == "true",
        url=f"{ui}/runs/{run.run_id}",
    )


def _cause(step: dg.DagsterEvent) -> str:
    """The first line of the error, without the name of the class that carries it."""
    error = step.step_failure_data.error
    text = (error.message if error is not None else "").strip().split("\n")[0]
    return text.removeprefix("dagster._core.definitions.events.Failure: ")


def notify(url: str, failed: FailedRun) -> bool:
    """POST it as JSON, with the `text` that Slack, Mattermost and Google Chat show. False: nobody took it."""
    body = msgspec.json.encode({"text": failed.sentence(), **asdict(failed)})
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310  # the operator's URL
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_WITHIN_S):  # noqa: S310  # the operator's URL
                return True
        except (urllib.error.URLError, OSError) as error:
            # Not the URL: it holds a secret.
            log.warning("the webhook did not take it", run_id=failed.run_id, attempt=attempt, error=str(error))
    return False
