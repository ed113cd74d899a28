"""The batch jobs by name: which function each is, what it must be handed to run elsewhere, and its call as plain data.

A job's parameters are those of its function, by name and type; they are stated nowhere else. No Dagster here: the
program that runs a job elsewhere (`job.py`) reads this too.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

import msgspec

from clientmgr.base.errors import InvalidInputError
from clientmgr.base.settings import Settings, sensitive_setting_names

ORDER: Final = "order"
"""What the order is called among the extras of Pipes."""
HANDED_IN: Final = ("spark", "database", "settings")
"""The first parameters of every job. Whoever runs it has them, or makes them from the settings that it was handed."""


@dataclass(frozen=True)
class BatchJob:
    """A function of Spark's that can run elsewhere, with no more rights than it needs."""

    name: str
    path: str
    """module:function."""
    secrets: tuple[str, ...]
    """The settings that it opens something with: the logins of its roles, keys. Its executors get no others."""
    credentials: tuple[str, ...] = ()
    """What variables begin with in which a cloud's own client looks for credentials."""

    def function(self) -> Callable[..., Any]:
        module, _, name = self.path.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found


_READER, _WRITER, _KEY = "DATABASE_READER_URL", "DATABASE_WRITER_URL", "AUDIT_HASH_KEY"
_AWS, _GOOGLE = ("AWS_",), ("GOOGLE_", "CLOUDSDK_")
_OURS = "clientmgr_dagster.spark"

JOBS: Final = {
    job.name: job
    for job in (
        BatchJob("orphans", f"{_OURS}.orphans:find_orphans", (_READER, _WRITER)),
        BatchJob("tenant_metrics", f"{_OURS}.tenant_metrics:collect_metrics", (_READER, _WRITER), _AWS),
        # It reads no tenant.
        BatchJob("legacy_devices", f"{_OURS}.legacy_devices:scan_legacy_devices", (_WRITER,), _AWS),
        # It reads no tenant. The key is for the hashes of contacts.
        BatchJob("deleted_contacts", f"{_OURS}.deleted_contacts:store_page", (_WRITER, _KEY), _GOOGLE),
        BatchJob(
            "contact_deletion_reconciliation",
            f"{_OURS}.contact_deletion_reconciliation:find_unerased",
            (_READER, _WRITER),
            _GOOGLE,
        ),
    )
}


class Order(msgspec.Struct, frozen=True):
    """A job's call as it travels. Nothing in it is secret: some services show it, or keep it in a bucket."""

    job: str
    parameters: dict[str, Any]
    settings: dict[str, Any]
    """Those that differ from their defaults and open nothing."""

    def call(self, **handed_in: Any) -> Any:
        """Run the job here, and give its result as plain data."""
        function = JOBS[self.job].function()
        hints = get_type_hints(function)
        given = {name: msgspec.convert(value, hints[name], strict=False) for name, value in self.parameters.items()}
        return msgspec.to_builtins(function(**handed_in, **given), str_keys=True)


def job_of(function: Callable[..., Any]) -> BatchJob:
    path = f"{function.__module__}:{function.__qualname__}"
    for job in JOBS.values():
        if job.path == path:
            return job
    raise InvalidInputError("job", f"a function of {__name__}.JOBS", path)


def order_for(
    function: Callable[..., Any], settings: Settings, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Order:
    """The call of a job's function with these parameters, without those that are handed in."""
    bound = inspect.signature(function).bind(*HANDED_IN, *args, **kwargs).arguments
    parameters = {name: value for name, value in bound.items() if name not in HANDED_IN}
    return Order(job_of(function).name, msgspec.to_builtins(parameters, str_keys=True), _plain(settings))


def result_of(function: Callable[..., Any], plain: Any) -> Any:
    """What the function would have returned, from its result as plain data."""
    return msgspec.convert(plain, get_type_hints(function)["return"], strict=False)


def _plain(settings: Settings) -> dict[str, Any]:
    """Where Spark is, is for whoever starts it."""
    hidden = {name.lower() for name in sensitive_setting_names()} | {"spark_master", "spark_connect_url"}
    changed: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True, exclude=hidden)
    return changed
