"""Batch jobs by Dagster Pipes: the call goes out as an order, its result comes back as a message.

Rows do not travel this way: jobs write them to their result tables, as they do everywhere.
"""

import warnings
from collections.abc import Callable
from typing import Any, Protocol, cast

import dagster as dg
import msgspec
from dagster import PipesClientCompletedInvocation

from clientmgr.base.errors import ClientManagerError, ErrorKind
from clientmgr_dagster.spark.batch_jobs import JOBS, ORDER, BatchJob, Order, result_of


class Launcher(Protocol):
    """Starts `job.py` somewhere, with these extras, and waits for its end. Docs: docs/spark_elsewhere.md."""

    def launch(
        self, context: dg.OpExecutionContext, job: BatchJob, extras: dict[str, Any]
    ) -> PipesClientCompletedInvocation:
        """If it is interrupted, it ends the job before it goes on."""
        ...


class JobFailedError(ClientManagerError):
    """A job failed elsewhere. Whether another attempt can help is what was found there."""

    def __init__(self, job: str, text: str, kind: ErrorKind = ErrorKind.UNFORESEEN) -> None:
        super().__init__(f"{job}: {text}")
        self.kind = kind


def run_by_pipes(
    launcher: Launcher, context: dg.AssetExecutionContext, function: Callable[..., Any], order: Order
) -> Any:
    """Have the order carried out elsewhere, and return what the function returned there."""
    # Dagster calls a part of its own session a preview. It is pinned, and it is Dagster that uses it.
    warnings.filterwarnings("ignore", "Function `PipesMessageReader.expected_writer_count`", dg.PreviewWarning)
    extras = {ORDER: msgspec.to_builtins(order)}
    done = launcher.launch(cast(dg.OpExecutionContext, _AsOfAnOp(context)), JOBS[order.job], extras)
    for message in done.get_custom_messages():
        if "error" in message:
            raise JobFailedError(order.job, message["error"], ErrorKind(message["kind"]))
        if "result" in message:
            return result_of(function, message["result"])
    raise JobFailedError(order.job, "ended without a result; its own output says more")


class _AsOfAnOp:
    """The step's context, as Pipes sees that of an op.

    For an asset Pipes would insist on reporting what is materialised, and our assets do that themselves, tenant by
    tenant. Customers are in the order.
    """

    has_assets_def = False
    has_partition_key = False

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context = context.op_execution_context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
