"""What `clientmgr publish` makes of its input, without a database."""

import io
import os
import threading
from pathlib import Path

import pytest

from clientmgr.base.errors import InvalidInputError
from clientmgr.cli.message_input import MessageForm, opened, parse_attributes

FORM = MessageForm("orders", max_bytes=1000)


@pytest.mark.parametrize(
    "customer", ["0", "-1", '"1; drop schema x"', '"١٢٣"', '" 1"', "1" * 30, "1.0", "true", "null", "[1]", '""']
)
def test_a_customer_that_can_not_be_is_refused_by_the_fields_name(customer: str) -> None:
    with pytest.raises(InvalidInputError, match="customerId: expected a positive integer"):
        FORM.message(f'{{"customerId": {customer}}}'.encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{'a': 1}", b'{"a": NaN}', b"\xff", b'{"customerId": 1e400}', b"[" * 100_000]
)
def test_what_no_worker_could_read_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="data: expected"):
        MessageForm("orders", max_bytes=1_000_000).message(data)


@pytest.mark.parametrize("data", [b'{"customerId": 7}', b' {"customerId": "7"}'])
def test_the_customer_of_an_object_is_the_tenant(data: bytes) -> None:
    assert FORM.message(data).tenant == "7"


@pytest.mark.parametrize("data", [b"[]", b'"customerId"', b"1", b'{"nested": {"customerId": 0}}'])
def test_a_message_that_names_no_customer_has_no_tenant(data: bytes) -> None:
    assert FORM.message(data).tenant == ""


def test_an_explicit_tenant_does_not_excuse_a_customer_that_can_not_be() -> None:
    with pytest.raises(InvalidInputError, match="customerId"):
        MessageForm("orders", 1000, tenant="x").message(b'{"customerId": 0}')


def test_blank_lines_count_but_are_no_messages() -> None:
    with pytest.raises(InvalidInputError, match="line 4: data"):
        list(FORM.messages(io.BytesIO(b"1\n\n  \n{\n")))


def test_a_too_long_line_is_not_read_whole() -> None:
    source = io.BytesIO(b'"' + b"x" * 1_000_000 + b'"')
    with pytest.raises(InvalidInputError, match="line 1: data: expected at most 1000 bytes"):
        list(FORM.messages(source))
    assert source.tell() < 2000


@pytest.mark.parametrize("pairs", [["x"], ["=1"], ["x=1", "x=2"]])
def test_a_wrong_attribute_is_refused(pairs: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="--attr"):
        parse_attributes(pairs)


def test_an_attributes_value_may_be_empty_or_have_an_equals_sign() -> None:
    assert parse_attributes(["a=", "b=c=d"]) == {"a": "", "b": "c=d"}


def test_a_pipe_can_be_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"1\n2\n",))
    writer.start()
    with opened(pipe) as source:
        assert source.read() == b"1\n2\n"
        source.seek(0)
        assert source.read() == b"1\n2\n"
    writer.join()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInputError, match="no-such-file"), opened(Path("no-such-file")):
        pass
