"""A child's lines in our log: our own records as they are, Dagster's in our form, anything else as a message."""

import io
import json
import logging

import pytest

from clientmgr.base.logs import configure_logging
from clientmgr.base.settings import load_settings
from clientmgr.local.processes.supervisor import forward_line
from tests.processes.conftest import Records


def test_a_record_of_ours_is_passed_on_as_it_is(restored_logging: None) -> None:
    stream = io.StringIO()
    configure_logging(load_settings(log_format="json"), stream=stream)
    line = '{"ecs.version": "8.17.0",  "message": "done"}'
    forward_line("writer", line)
    assert stream.getvalue() == line + "\n"


def test_a_record_of_dagster_gets_our_field_names(logged: Records) -> None:
    line = {"event": "Sensor failed", "level": "error", "logger": "dagster.daemon", "timestamp": "2026-01-01T00:00:00Z"}
    forward_line("dagster-daemon", json.dumps(line))
    (record,) = logged()
    assert record["message"] == "Sensor failed"
    assert record["log.level"] == "error"
    assert record["log.logger"] == "dagster-daemon"
    assert record["clientmgr"] == {"source": "dagster.daemon"}


def test_an_exception_of_dagster_keeps_its_message(logged: Records) -> None:
    exc_info = ["<class 'ZeroDivisionError'>", "ZeroDivisionError('division by zero')", "<traceback object at 0x7f>"]
    forward_line("dagster-daemon", json.dumps({"event": "oh", "level": "error", "exc_info": exc_info}))
    assert logged()[0]["error.message"] == "ZeroDivisionError('division by zero')"


def test_a_record_of_dagster_below_our_level_is_dropped(logged: Records) -> None:
    logging.getLogger().setLevel("WARNING")
    forward_line("dagster-daemon", '{"event": "Checking for new runs", "level": "info"}')
    assert logged() == []


def test_a_line_of_a_dagster_run_keeps_its_level(logged: Records) -> None:
    logging.getLogger().setLevel("WARNING")
    forward_line("dagster-daemon", "2026-11-16 05:57:36 +0000 - dagster - DEBUG - a_job - RUN_START - Started.")
    forward_line("dagster-daemon", "2026-11-16 05:57:37 +0000 - dagster - ERROR - a_job - STEP_FAILURE - Failed.")
    (record,) = logged()
    assert (record["log.level"], record["message"]) == ("error", "a_job - STEP_FAILURE - Failed.")


def test_a_bare_line_is_a_warning_under_its_programs_name(logged: Records) -> None:
    logging.getLogger().setLevel("WARNING")
    forward_line("dagster-webserver", "ModuleNotFoundError: No module named 'x'")
    (record,) = logged()
    assert record["message"] == "ModuleNotFoundError: No module named 'x'"
    assert record["log.level"] == "warning"
    assert record["log.logger"] == "dagster-webserver"


@pytest.mark.parametrize("line", ['{"half of a record": ', "{braces} of a message", '{"some": "json"}', "100% %s %d"])
def test_whatever_looks_like_a_record_and_is_none_is_a_message(logged: Records, line: str) -> None:
    forward_line("program", line)
    assert [record["message"] for record in logged()] == [line]


def test_colours_are_for_terminals(logged: Records) -> None:
    forward_line("program", "\x1b[32m2026-11-16\x1b[0m - \x1b[34mINFO\x1b[0m - hello")
    assert logged()[0]["message"] == "2026-11-16 - INFO - hello"


def test_an_empty_line_is_nothing(logged: Records) -> None:
    forward_line("program", "")
    assert logged() == []
