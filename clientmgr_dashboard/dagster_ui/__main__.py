"""`python -m clientmgr_dashboard.dagster_ui WORKSPACE_FILE`: what `clientmgr dagster webserver` becomes."""

import sys
from pathlib import Path

from clientmgr.base.errors import ClientManagerError, SettingsError
from clientmgr.base.settings import load_settings
from clientmgr_dashboard.dagster_ui.server import run_dagster_ui


def main() -> int:
    try:
        return run_dagster_ui(load_settings(), Path(sys.argv[1]))
    except ClientManagerError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, SettingsError) else 1


if __name__ == "__main__":
    sys.exit(main())
