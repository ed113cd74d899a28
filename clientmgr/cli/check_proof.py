"""`clientmgr audit check-proof`: whether a report of `contacts prove` or `tenants prove` is as it was written."""

from pathlib import Path
from typing import Annotated

import typer

from clientmgr.base.data_folder import with_audit_key
from clientmgr.base.errors import ClientManagerError, InvalidInputError
from clientmgr.base.settings import load_settings
from clientmgr.cli.output import JsonOption, console, print_json, unreadable
from clientmgr.erasure.report import check


def register(app: typer.Typer) -> None:
    app.command("check-proof")(check_proof)


def check_proof(
    file: Annotated[Path, typer.Argument(help="What `contacts prove` or `tenants prove` wrote.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Check that a report of `prove` is as it was written: its signature fits, with this AUDIT_HASH_KEY."""
    settings = with_audit_key(load_settings())
    try:
        text = file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable("FILE", file, error) from None
    try:
        report = check(text, settings)
    except InvalidInputError as error:
        raise ClientManagerError(str(error)) from None
    if as_json:
        print_json({"authentic": True, "verdict": report.verdict, "made_at": report.made_at})
    else:
        about = "" if report.contact_id is None else f"contact {report.contact_id} of "
        console.print(
            f"the report is as it was written: {about}customer {report.customer_id},"
            f" {report.made_at:%Y-%m-%d %H:%M:%S} UTC, verdict: {report.verdict}",
            markup=False,
            highlight=False,
        )
