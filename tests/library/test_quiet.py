"""A program that set up no logging: whatever goes wrong, nothing of a message is printed."""

import pytest

from clientmgr.base.database import Database
from tests.library.conftest import Run

SECRET = "a-very-personal-word"

PROGRAM = """
import os
from clientmgr.broker import InvalidInputError, Message, PermanentError, TransientError, open_broker_sync

secret = os.environ["SECRET"]
order = Message(f'{{"order": "{secret}"}}'.encode(), tenant="42", key=secret)
failures = [TransientError, KeyError, PermanentError]

def handle(batch):
    if failures:
        raise failures.pop(0)(batch.messages[0].data.decode())
    batch.connection.execute("SELECT %s::int", (secret,))

bad = [
    Message(f'{{"order": {secret}'.encode()),
    Message(f'"{secret}\\0"'.encode()),
    Message(b"\\xff" + secret.encode()),
    Message(b"1", tenant=secret * 100),
    Message(b"1", key=secret + "\\0"),
    Message(b"1", attributes={"note": secret * 100}),
]
with open_broker_sync(os.environ["URL"]) as broker:
    broker.migrate()
    broker.ensure_topic("orders")
    broker.ensure_subscription("billing", "orders")
    for message in bad:
        try:
            broker.publish("orders", [message])
        except InvalidInputError as error:
            print(error)
    for _ in range(2):
        broker.publish("orders", [order])
        print(broker.consume("billing", handle, burst=True).dead, "dead")
    broker.publish("orders", [bad[0]])
"""


@pytest.mark.server
def test_a_program_without_logging_prints_no_contents(empty_database: Database, fresh_process: Run) -> None:
    ended = fresh_process(PROGRAM, SECRET=SECRET, URL=empty_database.url)
    assert ended.stdout.count("dead") == 2, ended.stderr
    assert ended.stdout.count("expected") == 6
    assert "InvalidInputError: data: expected JSON" in ended.stderr  # of the last line, which nobody catches
    assert SECRET not in ended.stdout + ended.stderr
    assert ended.stderr.count("\n") == ended.stderr[ended.stderr.index("Traceback") :].count("\n"), "and nothing before"


LOGGED = """
import logging
from clientmgr.base.logs import get_logger

logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
log = get_logger("clientmgr.test")
log.info("not at this level")
log.warning("batch failed", topic="orders", error="x\\nDETAIL:  Key (a)=(anna)", pushToken="a" * 30 + "0123456789")
"""


def test_a_program_with_logging_sees_lines_with_their_secrets_masked(fresh_process: Run) -> None:
    ended = fresh_process(LOGGED)
    assert ended.stdout == ""
    assert ended.stderr == "WARNING clientmgr.test batch failed topic=orders error=x pushToken=aaaaaa…6789\n"
