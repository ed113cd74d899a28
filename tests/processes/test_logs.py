"""Logs: readable on a terminal, JSON with ECS field names elsewhere; the libraries' and ours alike."""

import io
import json
import logging
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from clientmgr.base.logs import configure_logging, get_logger, logs_as_json
from clientmgr.base.settings import load_settings
from clientmgr.local.processes.programs import all_programs
from tests.processes.conftest import Records

pytestmark = pytest.mark.usefixtures("restored_logging")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged_on(stream: io.StringIO, **settings: Any) -> io.StringIO:
    configure_logging(load_settings(**settings), process="writer", stream=stream)
    return stream


def test_a_record_has_ecs_names(logged: Records) -> None:
    get_logger("clientmgr.test").info("tenant activated", customer_id=5, rows=3)
    (record,) = logged()
    assert record.pop("@timestamp").endswith("Z")
    assert record == {
        "ecs.version": "8.17.0",
        "service.name": "client-manager",
        "process.name": "clientmgr",
        "log.level": "info",
        "log.logger": "clientmgr.test",
        "message": "tenant activated",
        "organization.id": 5,
        "clientmgr": {"rows": 3},
    }


def test_what_postgresql_quotes_of_a_row_is_left_out(logged: Records) -> None:
    refused = ValueError("duplicate key\nDETAIL:  Key (client_id)=(anna) already exists.\nHINT:  none")
    get_logger("clientmgr.test").warning("batch failed", error=str(refused), exc_info=refused)
    (record,) = logged()
    assert record["error.message"] == "duplicate key\nHINT:  none"
    assert "anna" not in json.dumps(record)


TOKEN = "a-token-of-some-length-0123456789"


@dataclass
class Subscription:
    endpoint: str


class RefusedError(Exception):
    pass


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_is_in_any_line_and_ids_stay(log_format: str) -> None:
    stream = logged_on(io.StringIO(), log_format=log_format)
    ours, library = get_logger("clientmgr.test"), logging.getLogger("urllib3")
    ours.info(f"sent push_token={TOKEN}")
    ours.info("sent", push_token=TOKEN, request={"headers": [("Authorization", f"Bearer {TOKEN}")]})
    ours.info("sent", subscription=Subscription(TOKEN), tokens=(TOKEN,), tries=3)
    ours.bind(password=TOKEN).info("bound")
    with structlog.contextvars.bound_contextvars(api_key=TOKEN):
        ours.info("in its context")
    library.warning("header %s", f"authorization: Bearer {TOKEN}")
    library.warning("device %s", {"pushToken": TOKEN})
    for log in (ours, library):
        try:
            try:
                raise RefusedError(f"token={TOKEN} was refused")
            except RefusedError as cause:
                raise ValueError(f'{{"endpoint": "{TOKEN}"}}') from cause
        except ValueError as error:
            log.exception("failed: %s", error)
            log.warning("failed", exc_info=error)
    ours.error("failed", error=RefusedError(f"secret={TOKEN}"), stack_info=True)
    ours.info("found", event_id="0123456789abcdef" * 4, client_id="cAb3kf0xQ0-9Zk2hZ7pX1a", customer_id=1001)
    text = stream.getvalue()
    assert TOKEN not in text
    assert text.count("RefusedError") >= 5
    assert "test_logs.py" in text
    assert "0123456789abcdef" * 4 in text
    assert "cAb3kf0xQ0-9Zk2hZ7pX1a" in text


FORGED = "\n2026-11-18T00:00:00Z [info     ] tenant deleted\r\x1b[2J\x9b2J\u2028\u202e"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_what_others_sent_begins_no_line_and_commands_no_terminal(log_format: str) -> None:
    stream = logged_on(io.StringIO(), log_format=log_format)
    ours, library = get_logger("clientmgr.test"), logging.getLogger("urllib3")
    for sent in (FORGED, "\x1b[2J", "\x9b2J"):
        ours.warning(f"unknown event {sent}", client_id=sent, event_type={"of": [sent]}, error=ValueError(sent))
        ours.warning("unknown fields", **{sent: sent})
        library.warning("header %s", sent)
        for log in (ours, library):
            try:
                raise ValueError(sent)
            except ValueError:
                log.exception("failed", stack_info=True)
    text = stream.getvalue()
    lines = [line for line in text.split("\n") if line and not line.startswith("    ")]
    assert len(lines) == 3 * 5
    assert "tenant deleted" in text
    assert all(character.isprintable() or character in "\n\t" for character in text)


def test_a_library_s_record_looks_the_same(logged: Records) -> None:
    logging.getLogger("psycopg.pool").warning("lost %s of %d", "one", 3)
    (record,) = logged()
    assert record["message"] == "lost one of 3"
    assert record["log.logger"] == "psycopg.pool"
    assert record["log.level"] == "warning"
    assert record["ecs.version"] == "8.17.0"


@pytest.mark.parametrize("whose", ["ours", "a library's"])
def test_an_exception_is_one_record_with_type_message_and_trace(logged: Records, whose: str) -> None:
    logger: Any = get_logger("test") if whose == "ours" else logging.getLogger("test")
    try:
        raise ValueError("no such thing")
    except ValueError:
        logger.exception("it failed")
    (record,) = logged()
    assert record["message"] == "it failed"
    assert record["error.type"] == "ValueError"
    assert record["error.message"] == "no such thing"
    assert record["error.stack_trace"].startswith("Traceback")
    assert record["error.stack_trace"].endswith("ValueError: no such thing")


def test_what_json_can_not_hold_is_still_one_line(logged: Records) -> None:
    get_logger("test").info("line one\nline two", path=Path("/x"), number=object, text="ü\u2028")
    (record,) = logged()
    assert record["message"] == "line one\nline two"


def test_a_python_warning_is_a_record(logged: Records) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # As the interpreter does outside of tests, which turn warnings into errors.
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old-fashioned", DeprecationWarning, stacklevel=1)
    assert "old-fashioned" in logged()[0]["message"]
    assert logged()[0]["log.logger"] == "py.warnings"


def test_context_of_the_task_is_in_its_records(logged: Records) -> None:
    with structlog.contextvars.bound_contextvars(customer_id=7):
        get_logger("test").info("hello")
    assert logged()[0]["organization.id"] == 7


def test_auto_is_readable_on_a_terminal_and_json_elsewhere() -> None:
    readable = logged_on(Terminal())
    get_logger("test").info("hello", rows=3)
    assert "hello" in readable.getvalue()
    assert "rows" in readable.getvalue()
    assert "\x1b[" in readable.getvalue()
    machine = logged_on(io.StringIO())
    get_logger("test").info("hello")
    assert json.loads(machine.getvalue())["process.name"] == "writer"


def test_the_readable_form_can_be_had_without_a_terminal() -> None:
    stream = logged_on(io.StringIO(), log_format="console")
    get_logger("test").info("hello", rows=3)
    assert "hello" in stream.getvalue()
    assert "rows=3" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()


def test_what_is_below_the_level_is_dropped() -> None:
    stream = logged_on(io.StringIO(), log_level="warning")
    get_logger("test").info("chatter")
    logging.getLogger("library").info("chatter")
    get_logger("test").warning("news")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["news"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_our_programs_log_in_the_form_that_we_do(tmp_path: Path, log_format: str) -> None:
    settings = load_settings(data_dir=tmp_path, database_url="postgresql://host/db", java_home=_some_java(tmp_path))
    for program in all_programs(settings, log_format=log_format):
        assert program.env["LOG_FORMAT"] == log_format
        assert program.env["DATA_DIR"] == str(tmp_path)
        assert program.env["PATH"] == os.environ["PATH"]


def test_json_is_chosen_by_the_stream_unless_a_form_is_asked_for() -> None:
    assert logs_as_json(load_settings(), io.StringIO())
    assert not logs_as_json(load_settings(), Terminal())
    assert logs_as_json(load_settings(log_format="json"), Terminal())
    assert not logs_as_json(load_settings(log_format="console"), sys.stderr)


def _some_java(folder: Path) -> str:
    java = folder / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    return str(folder / "jdk")
