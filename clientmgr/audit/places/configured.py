"""The places that AUDIT_ANCHORS names, or the one that everybody has who sets nothing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from clientmgr.audit.places.buckets import S3Place
from clientmgr.audit.places.file import FilePlace
from clientmgr.audit.places.interface import AnchorPlace
from clientmgr.audit.places.webhook import WebhookPlace
from clientmgr.base.settings import Settings

_FOLDER: Final = "audit_anchors"


def _redis_place(url: str) -> AnchorPlace:
    from clientmgr.audit.places.redis import RedisPlace  # few have one, and its client is of the extra `live`

    return RedisPlace(url)


_KINDS: Final[Mapping[str, Callable[[str], AnchorPlace]]] = {
    "file": lambda url: FilePlace(Path(url.removeprefix("file:").removeprefix("//"))),
    "redis": _redis_place,
    "rediss": _redis_place,
    "s3": S3Place,
    "https": WebhookPlace,
    "http": WebhookPlace,
}


def anchor_places(settings: Settings) -> Sequence[AnchorPlace]:
    """Every place, in the order given. Made, not yet asked anything."""
    urls = [url for url in map(str.strip, settings.audit_anchors.get_secret_value().split(",")) if url]
    if not urls:
        return [FilePlace(_default_file(settings))]
    return [_KINDS[url.partition(":")[0]](url) for url in urls]


def _default_file(settings: Settings) -> Path:
    # Named by the database, as the settings do and not as the database says: its owner must not choose the file.
    urls = (
        settings.database_url,
        settings.database_reader_url,
        settings.database_writer_url,
        settings.database_ddl_url,
    )
    url = next(filter(None, urls), "")
    name = unquote(urlsplit(url).path).strip("/") or "database"
    safe = "".join(character if character.isalnum() or character in "-_." else "_" for character in name)
    return settings.data_dir / _FOLDER / f"{safe}.jsonl"
