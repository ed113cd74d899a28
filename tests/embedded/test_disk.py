"""A disk that is nearly full is refused before anything starts; one that runs full meanwhile is named as the cause."""

import os
import subprocess
from pathlib import Path

import pytest

from clientmgr.base.errors import EmbeddedServerError
from clientmgr.base.settings import load_settings
from clientmgr.local.embedded.server import failure_reason
from clientmgr.local.embedded.stack import EmbeddedStack
from tests.cli.conftest import CLIENTMGR
from tests.process_table import mentioning

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc"]


def test_a_nearly_full_disk_is_refused_before_anything_starts(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "data", embedded_minimum_free_mb=10**9)
    with pytest.raises(EmbeddedServerError) as caught, EmbeddedStack(settings):
        pass
    assert "MB free on the disk of" in str(caught.value)
    assert "1000000000 MB (EMBEDDED_MINIMUM_FREE_MB) are needed" in str(caught.value)
    assert not (tmp_path / "data" / "postgres").exists()


def test_what_a_server_could_not_even_write_down_is_still_recognised(tmp_path: Path) -> None:
    assert "is full" in failure_reason("FATAL: could not write file: No space left on device", tmp_path)
    assert "is full" not in failure_reason("FATAL: something else", tmp_path)


@pytest.mark.server
# Not a byte left; room for our own files alone; room for half an initdb.
@pytest.mark.parametrize("size_kb", [256, 1024, 20 * 1024])
def test_a_full_disk_is_named_as_the_cause(tmp_path: Path, size_kb: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    fill = "head -c 252k /dev/zero > $0/filler; head -c 4k /dev/zero > $0/more || true" if size_kb == 256 else "true"
    mount = f"mount -t tmpfs -o size={size_kb}k none $0"
    probe = subprocess.run([*NAMESPACE, mount, disk], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"this machine lets us mount no small disk: {probe.stderr.strip()}")
    environment = {**os.environ, "DATA_DIR": str(disk / "data"), "EMBEDDED_MINIMUM_FREE_MB": "0", "DAGSTER_PORT": "0"}
    result = subprocess.run(
        [*NAMESPACE, f"{mount}; mkdir $0/data; {fill}; LOG_FORMAT=console exec $1 up", disk, CLIENTMGR],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"the disk of {disk}" in result.stderr
    assert "is full" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.returncode == 3
    assert not mentioning(disk)
