"""Dagster's home: our dagster.yaml, with the storage that an installation adds to it."""

from pathlib import Path

STORAGE = """
# Added by clientmgr, which sets these variables.
storage:
  custom:
    module: clientmgr_dagster.storage
    class: Storage
    config:
      postgres_url:
        env: DAGSTER_POSTGRES_URL

local_artifact_storage:
  module: dagster._core.storage.root
  class: LocalArtifactStorage
  config:
    base_dir:
      env: DAGSTER_ARTIFACTS_DIR

compute_logs:
  module: dagster._core.storage.local_compute_log_manager
  class: LocalComputeLogManager
  config:
    base_dir:
      env: DAGSTER_ARTIFACTS_DIR
"""


def write_dagster_home(home: Path, ours: Path) -> None:
    """Not part of dagster.yaml itself: without the variables that this names, no program of Dagster's would start."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(ours.read_text() + STORAGE)
