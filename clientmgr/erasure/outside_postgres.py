"""The looks into what is not PostgreSQL: Redis, the files of the data folder, and the legacy store of devices."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from clientmgr.base.settings import Settings
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.erasure.recognition import mentions
from clientmgr.erasure.rule import Stored
from clientmgr.erasure.stored_rows import Tick
from clientmgr.erasure.subject import Subject
from clientmgr.erasure.tables import EXAMPLES, Seen
from clientmgr.tenants.cache_invalidation import ANSWER_WITHIN_S

AT_ONCE: Final = 500
SERVERS: Final = frozenset({"postgres", "redis", "standins"})
"""Folders that belong to servers. Their data is looked at through the servers, and their logs are read."""
NEVER_READ: Final = frozenset(
    {"audit_hash_key", "live_token_key", "dashboard_session_key", "intake_signing_key", "lock"}
)
LONGEST_LINE: Final = 16 * 1024 * 1024
LARGEST_DOCUMENT: Final = 256 * 1024 * 1024
PROOF_BEGINS: Final = b'{\n  "report": "proof: '


def look_into_redis(settings: Settings, subject: Subject, tick: Tick) -> Seen:
    """Every key of the database that REDIS_URL names, with all that it holds."""
    # It takes half a second to import, and most commands need none.
    import redis

    client = redis.Redis.from_url(
        settings.redis_url, socket_timeout=5 * ANSWER_WITHIN_S, socket_connect_timeout=ANSWER_WITHIN_S
    )
    keys, where = 0, []
    try:
        for key in client.scan_iter(count=AT_ONCE):
            keys += 1
            name = key.decode(errors="replace")
            if any(subject.is_named_in(f"{name} {value.decode(errors='replace')}") for value in _values(client, key)):
                where.append(f"key {name}")
            tick(1)
    finally:
        client.close()
    return Seen(keys, len(where), where=tuple(where[:EXAMPLES]))


def _values(client: Any, key: bytes) -> Iterator[bytes]:
    """All values of a key, piece by piece, whatever its type. A key that is gone by now has none."""
    yield b""
    kind = client.type(key)
    if kind == b"string":
        yield client.get(key) or b""
    elif kind == b"hash":
        for field, value in client.hscan_iter(key, count=AT_ONCE):
            yield field + b" " + value
    elif kind == b"set":
        yield from client.sscan_iter(key, count=AT_ONCE)
    elif kind == b"zset":
        for member, _ in client.zscan_iter(key, count=AT_ONCE):
            yield member
    elif kind == b"list":
        start = 0
        while page := client.lrange(key, start, start + AT_ONCE - 1):
            yield from page
            start += len(page)
    elif kind == b"stream":
        last = b"-"
        while page := client.xrange(key, min=last, count=AT_ONCE):
            for number, fields in page:
                yield b" ".join(part for pair in (fields or {}).items() for part in pair)
                last = b"(" + number


def look_into_files(settings: Settings, subject: Subject, tick: Tick) -> Seen:
    """Logs, exports and what Dagster's runs wrote: every file of the data folder that is not a server's own data."""
    files = kept = 0
    where = []
    for file in _files(settings.data_dir):
        files += 1
        try:
            if _is_left_in(file, subject):
                where.append(str(file.relative_to(settings.data_dir)))
            elif subject.contact_id is None and any(subject.is_named_in(line) for line in _lines(file)):
                kept += 1
        except FileNotFoundError:
            files -= 1  # rotated or finished meanwhile
        tick(1)
    return Seen(files, len(where), kept=kept, where=tuple(where[:EXAMPLES]))


def _files(folder: Path) -> Iterator[Path]:
    for path, folders, names in os.walk(folder):
        here = Path(path)
        is_servers = here.parent == folder and here.name in SERVERS
        if is_servers:
            folders.clear()
        for name in sorted(names):
            file = here / name
            is_log = file.suffix == ".log"
            if (is_log or not is_servers) and name not in NEVER_READ and file.is_file() and not file.is_symlink():
                yield file


def _is_left_in(file: Path, subject: Subject) -> bool:
    if file.suffix == ".json" and file.stat().st_size < LARGEST_DOCUMENT:
        document = file.read_bytes()
        # A proof names whom it is about, and has nothing of them.
        return not document.startswith(PROOF_BEGINS) and _is_left_in_document(document, subject)
    if subject.contact_id is None:
        return any(_is_left_in_document(line.encode(), subject) for line in _lines(file))
    if any(subject.is_named_in(line) for line in _lines(file)):
        return True
    if file.suffix == ".ndjson":
        return any(_is_exported(line.encode(), subject) for line in _lines(file))
    if file.suffix == ".csv":
        with file.open(newline="", errors="replace") as rows:
            return any(_is_exported(json.dumps(row).encode(), subject) for row in csv.DictReader(rows))
    return False


def _is_left_in_document(document: bytes, subject: Subject) -> bool:
    """Whether it names the contact; of an account, whether it names somebody of it: its number alone is nobody's."""
    stored = Stored(document, "", "", {}, 0)
    if subject.is_asked_for_in(document.decode(errors="replace")):
        return True
    if subject.contact_id is None:
        named = stored.mentions()
        return subject.customer_id in named.customers and not named.names_nobody
    return subject.concerns(stored) or subject.is_named_in(document.decode(errors="replace"))


def _is_exported(row: bytes, subject: Subject) -> bool:
    """Whether a row of `devices export` is the contact's. Such a row does not say which customer it belongs to."""
    named = mentions(row, str(subject.customer_id))
    if (subject.devices or subject.gone) and named.devices:
        return any(subject.is_device(application, client_id) for application, client_id in named.devices)
    return subject.contact_id in named.contacts


def _lines(file: Path) -> Iterator[str]:
    with file.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            yield line.decode(errors="replace")


def legacy_devices(settings: Settings, subject: Subject) -> Iterator[dict[str, Any]]:
    """The contact's devices in DynamoDB, as they stand there."""
    client = DynamoDbAccess.from_settings(settings, attempts=3).client()
    try:
        request: dict[str, Any] = {
            "TableName": settings.dynamodb_devices_table,
            "KeyConditionExpression": "contactKey = :contact",
            "ExpressionAttributeValues": {":contact": {"S": f"{subject.customer_id}#{subject.contact_id}"}},
        }
        while True:
            page = client.query(**request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    finally:
        client.close()
