"""Tables as files for spreadsheets. Nothing in them is a formula, whoever wrote it."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from clientmgr.base.csv_cells import harmless


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow([_printable(name) for name in header])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return output.getvalue()


def csv_answer(name: str, text: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, str):
        return value
    return harmless(_printable(value))


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
