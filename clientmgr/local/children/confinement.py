"""Which files a child may touch: Landlock, which needs no privilege and which no child of the child can undo.

A confined server reads the system's programs and its own, and writes its own folder alone. So whoever has become its
superuser, and has it run programs, still reads no key of ours; nor can it signal or trace our processes.
Standard library only: as a program, it confines itself and becomes the command.

usage: confinement.py '{"read": [path …], "write": [path …]}' command [argument …]
"""

import ctypes
import functools
import json
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The same numbers on every architecture: <asm-generic/unistd.h>. The rest is of <linux/landlock.h>.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING: Final = _EXECUTE | _READ_FILE | _READ_DIR
_EVERYTHING: Final = (1 << 16) - 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1 << 0, 1 << 1

SYSTEM: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store",
    "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/timezone", "/etc/ssl/openssl.cnf",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts",
    "/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/sys", "/sys/devices/system", "/sys/kernel/mm",
)  # fmt: skip
"""What any program needs to start and to know the time. Not all of /etc: keys may be there."""
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


@dataclass(frozen=True)
class Confinement:
    """What a child may read (and run), and what it may read and write."""

    read: tuple[str, ...]
    write: tuple[str, ...]

    @classmethod
    def of_server(cls, programs: Path, *writable: Path, readable: Sequence[Path] = ()) -> "Confinement":
        """A server that needs its programs, what it writes, and of the rest what any program needs."""
        return cls((*SYSTEM, *map(str, (programs, *readable))), (*DEVICES, *map(str, writable)))

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before the command that is to be confined."""
        return sys.executable, "-IS", __file__, json.dumps({"read": self.read, "write": self.write})

    def confine_ourselves(self) -> None:
        """From here on this process, and all that it starts. Paths that do not exist are passed over."""
        version = landlock_version()
        handled = _EVERYTHING
        for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
            if version < since:
                handled &= ~right
        scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= 6 else 0  # its sixth version
        rules = _Ruleset(handled, 0, scoped)
        # A kernel refuses a structure that says more than it knows, unless the rest is zero.
        ruleset = _call(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
        try:
            _allow(ruleset, self.read, handled & _READING)
            _allow(ruleset, self.write, handled)
            if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")
            _call(_RESTRICT_SELF, ruleset, 0)
        finally:
            os.close(ruleset)


@functools.cache
def landlock_version() -> int:
    """0: this kernel has none, or it is not for us."""
    if sys.platform != "linux":
        return 0
    try:
        return _call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def _allow(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            rule = _PathBeneath(rights if is_folder else rights & _OF_FILES, descriptor)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
        finally:
            os.close(descriptor)


def _call(*arguments: object) -> int:
    result: int = _libc().syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    allowed, *command = arguments
    lists = json.loads(allowed)
    try:
        Confinement(tuple(lists["read"]), tuple(lists["write"])).confine_ourselves()
        os.execv(command[0], command)  # noqa: S606  # no shell is wanted
    except OSError as error:
        # Not confined is not started.
        print(f"cannot confine or run {command[0]}: {error}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
