"""Logging set-up: readable on a terminal, JSON with ECS field names elsewhere. Standard library loggers join in.

Secrets are masked in every line, whoever logs it: in its message, its values and its traceback. What others sent ends
no line and begins none. In a program that is not ours and has set up no logging, nothing is written at all: an error's
text may quote a message.
"""

import logging
import re
import sys
from typing import Any, Final, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from clientmgr.base.masking import masked, masked_traceback
from clientmgr.base.settings import Settings

SERVICE_NAME = "client-manager"

# As the standard library asks of libraries: without it, warnings of ours would go to standard error by themselves.
logging.getLogger("clientmgr").addHandler(logging.NullHandler())

_ECS_NAMES = {
    "timestamp": "@timestamp",
    "level": "log.level",
    "logger": "log.logger",
    "event": "message",
    "process": "process.name",
    "pid": "process.pid",
    "exception": "error.stack_trace",
    "error": "error.message",
    "error_type": "error.type",
    "customer_id": "organization.id",
}


def configure_logging(settings: Settings, *, process: str = "clientmgr", stream: TextIO | None = None) -> None:
    """Send all logs, ours and the libraries', to `stream` (standard error) in the format the settings ask for."""
    stream = stream or sys.stderr
    as_json = logs_as_json(settings, stream)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _leave_out_rows,
    ]
    rendering: list[Processor]
    if as_json:
        rendering = [
            _describe_exception,
            *_MASKED_TEXTS,
            _to_ecs(process),
            structlog.processors.JSONRenderer(),
        ]
    else:
        # A formatter of tracebacks that shows variables would show what is in them.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0, exception_formatter=plain)
        rendering = [*_MASKED_TEXTS, _in_own_lines, renderer]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Not cached: a logger that was used before would keep the configuration it had then.
        cache_logger_on_first_use=False,
    )


def logs_as_json(settings: Settings, stream: TextIO) -> bool:
    """Whether the log on `stream` is for machines."""
    return settings.log_format == "json" or (settings.log_format == "auto" and not stream.isatty())


def write_line(line: str) -> None:
    """Write a line that is already in its final form where the log goes."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.acquire()
            try:
                handler.stream.write(line + "\n")
                handler.flush()
            finally:
                handler.release()


def log_to_stdout() -> None:
    """For processes of Dagster's, which keeps what a run prints. Changes nothing where logging is set up already."""
    if structlog.is_configured():
        return
    plain = structlog.dev.plain_traceback
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_MASKED_TEXTS,
            _in_own_lines,
            structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, exception_formatter=plain),
        ],
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that takes key-value pairs: `log.info("tenant activated", customer_id=5)`."""
    return cast(structlog.stdlib.BoundLogger, _Logger(name))


class _Logger:
    """Logs as structlog is configured. Where nobody did, the program is not ours: to its `logging`, if it has any.

    structlog itself would print, tracebacks and all.
    """

    def __init__(self, name: str) -> None:
        self._as_configured = structlog.stdlib.get_logger(name)
        self._as_a_library = structlog.wrap_logger(
            logging.getLogger(name), processors=_LIBRARY_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._as_configured if structlog.is_configured() else self._as_a_library, name)


def _describe_exception(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """An exception's type and message beside its traceback, where machines look for them."""
    exc_info = event.get("exc_info")
    error = sys.exc_info()[1] if exc_info is True else exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if isinstance(error, BaseException):
        event.setdefault("error", str(error))
        event.setdefault("error_type", type(error).__name__)
    return event


_DETAILS = re.compile(r"\n(?:DETAIL|CONTEXT):.*")


def _leave_out_rows(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """PostgreSQL's details quote the row that was refused. It may be a person's, and the log is kept for long."""
    for name in ("error", "exception"):
        if isinstance(text := event.get(name), str):
            event[name] = _DETAILS.sub("", text)
    return event


_NEVER_SECRET = frozenset({"timestamp", "level", "logger"})
_TRACES = ("exception", "stack")


def _mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """After the traceback became a text: what is added to a line behind this is not masked."""
    texts = {name: value for name, value in event.items() if name not in _NEVER_SECRET and name not in _TRACES}
    event.update(masked(texts, whatever=True))
    for name in _TRACES:
        if isinstance(text := event.get(name), str):
            event[name] = masked_traceback(text)
    return event


_MASKED_TEXTS: tuple[Processor, ...] = (structlog.processors.format_exc_info, _leave_out_rows, _mask_secrets)


_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _visible(text: str) -> str:
    """Without line ends, and without what a terminal obeys."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _in_own_lines(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """For people, who tell one line from the next by its beginning: no message and no traceback may begin a line."""
    for name in _TRACES:
        if isinstance(text := event.get(name), str):
            event[name] = "\n".join(f"    {_visible(line)}" for line in text.split("\n"))
    return {
        _visible(name): _visible(value) if isinstance(value, str) and name not in _TRACES else value
        for name, value in event.items()
    }


def _as_one_text(_logger: Any, _method: str, event: EventDict) -> str:
    """`batch failed topic=orders failures=1`, and the traceback below it."""
    text, trace = str(event.pop("event", "")), event.pop("exception", "")
    line = _visible(" ".join([text, *(f"{name}={value}" for name, value in event.items())]))
    return f"{line}\n{trace}" if trace else line


_LIBRARY_PROCESSORS: Final[list[Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    _leave_out_rows,
    *_MASKED_TEXTS,
    _in_own_lines,
    _as_one_text,
]


def _to_ecs(process: str) -> Processor:
    def rename(_logger: Any, _method: str, event: EventDict) -> EventDict:
        ecs: EventDict = {"ecs.version": "8.17.0", "service.name": SERVICE_NAME, "process.name": process}
        ours: dict[str, Any] = {}
        for key, value in event.items():
            if key in _ECS_NAMES:
                ecs[_ECS_NAMES[key]] = value
            else:
                ours[key] = value
        if ours:
            # ECS keeps fields that are not its own under a name of the organisation's choosing.
            ecs["clientmgr"] = ours
        return ecs

    return rename
