"""docs/library.md: each of its programs runs as it stands there, and prints what the page says."""

import re

import pytest

from clientmgr.base.database import Database
from tests.library.conftest import Run
from tools.docs import DOCS

PAGE = (DOCS / "library.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL)
URL_IN_PAGE = "postgresql://shop:secret@localhost/shop"

# Packages of the extras. `rich` is left out: structlog imports it where it is installed, and does without elsewhere.
OF_EXTRAS = (
    "adbc_driver_manager boto3 dagster google grpc jinja2 langcodes pyarrow pyspark redis starlette typer uvicorn"
)
TELL_HEAVY = f"""
import sys
print("of extras:", sorted(sys.modules.keys() & set("{OF_EXTRAS}".split())))
"""


def test_every_program_of_the_page_says_what_it_prints() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") > 0


@pytest.mark.server
@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_prints_what_the_page_says_and_needs_no_extra(
    program: str, printed: str, empty_database: Database, fresh_process: Run
) -> None:
    assert URL_IN_PAGE in program
    ended = fresh_process(program.replace(URL_IN_PAGE, empty_database.url) + TELL_HEAVY)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == printed + "of extras: []\n"


def test_the_first_program_is_ten_lines_of_work() -> None:
    program, _ = PROGRAMS[0]
    assert len([line for line in program.splitlines() if line.strip() and "import" not in line]) <= 12
