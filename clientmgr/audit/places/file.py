"""A file of anchors: one a line, only ever appended to, on the disk before anybody goes on."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from clientmgr.audit.places.interface import AnchoredMeanwhileError, PlaceUnavailableError

ROTATED_AT_BYTES: Final = 32 * 1024 * 1024
"""A file of this size is moved aside. Only the last line is ever needed; the old file is for whoever wants to look."""
_READ_BYTES: Final = 64 * 1024


class _Numbered(msgspec.Struct):
    number: int


class FilePlace:
    """Processes of one machine take turns by a lock on a file beside it."""

    def __init__(self, path: Path, *, rotated_at_bytes: int = ROTATED_AT_BYTES) -> None:
        self._path = path.absolute()
        self._rotated_at_bytes = rotated_at_bytes
        # The same path on another machine is another file.
        self.name = f"file:{self._path} on {socket.gethostname()}"

    def read_last(self) -> bytes | None:
        with _failing_clearly(self._path):
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                return _last_line(descriptor)[0]
            finally:
                os.close(descriptor)

    def write(self, number: int, line: bytes) -> None:
        with _failing_clearly(self._path), self._locked() as descriptor:
            last, end = _last_line(descriptor)
            if last is not None and number <= _number_of(last):
                raise AnchoredMeanwhileError(f"{self.name}: another process has written anchor {number}")
            # What a killed process left half written. It was never acknowledged, so nothing is lost with it.
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
            _write_all(descriptor, line + b"\n")
            os.fsync(descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, ours alone. A file that has grown too large is moved aside, and its last line begins the next."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not _is_still(self._path, descriptor):
                    continue  # somebody has moved it aside while we waited
                if os.fstat(descriptor).st_size >= self._rotated_at_bytes and self._rotate(descriptor):
                    continue
                self._sync_folder()
                yield descriptor
                return
            finally:
                os.close(descriptor)

    def _rotate(self, descriptor: int) -> bool:
        last, end = _last_line(descriptor)
        if last is None or end <= len(last) + 1:
            return False  # one line alone is that large
        fresh = self._path.with_name(f".{self._path.name}.new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
            output.write(last + b"\n")
            output.flush()
            os.fsync(output.fileno())
        # At every moment there is a file of this name, with the last anchor in it.
        aside = self._path.with_name(f"{self._path.name}.1")
        aside.unlink(missing_ok=True)
        aside.hardlink_to(self._path)
        fresh.replace(self._path)
        return True

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _last_line(descriptor: int) -> tuple[bytes | None, int]:
    """The last whole line, without its end, and where that line ends in the file."""
    position = os.fstat(descriptor).st_size
    tail = b""
    while True:
        end = tail.rfind(b"\n")
        begin = tail.rfind(b"\n", 0, end) if end > 0 else -1
        if position == 0 or begin >= 0:
            break
        size = min(max(_READ_BYTES, len(tail)), position)
        position -= size
        tail = os.pread(descriptor, size, position) + tail
    if end < 0:
        return None, 0
    return tail[begin + 1 : end], position + end + 1


def _number_of(line: bytes) -> int:
    try:
        return msgspec.json.decode(line, type=_Numbered).number
    except msgspec.DecodeError:
        return 0  # not ours; whoever reads it says so


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _failing_clearly(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PlaceUnavailableError(f"{path}: {error.strerror or error}") from error
