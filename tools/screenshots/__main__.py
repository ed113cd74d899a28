"""`python -m tools.screenshots`: take the pictures from a running demo (`make demo`), with headless Chromium."""

import argparse
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from PIL import Image

from clientmgr.base.settings import load_settings
from tests.browser import HOW_TO_GET_IT, Browser, browsing, find_chromium
from tests.waiting import eventually
from tools.screenshots import SHOTS, Shot

IMAGES: Final = Path(__file__).resolve().parent.parent.parent / "docs" / "images"
MOST_BYTES: Final = 200_000
TEXT: Final = "document.body ? document.body.innerText : ''"
# Two pictures that are the same: fonts, charts and animations have come to rest, or never do.
SETTLED_WITHIN_S: Final = 5.0
SHOWN_WITHIN_S: Final = 90.0


def main(arguments: Sequence[str]) -> int:
    settings = load_settings()
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--dagster", default=f"http://127.0.0.1:{settings.dagster_port}", help="where its UI is")
    parser.add_argument("--live", default=f"http://127.0.0.1:{settings.live_ws_port}", help="where /live is")
    parser.add_argument("--dashboard", default="http://127.0.0.1:8788", help="where the dashboard is")
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder to write to")
    parser.add_argument("names", nargs="*", help="only these pictures")
    options = parser.parse_args(arguments)
    if find_chromium() is None:
        parser.error(HOW_TO_GET_IT)
    places = {"dagster": options.dagster, "live": options.live, "dashboard": options.dashboard}
    wanted = [shot for shot in SHOTS if not options.names or shot.name in options.names]
    missing = sorted(name for name, url in places.items() if not answers(url) and is_needed(name, wanted))
    for name in missing:
        sys.stderr.write(f"{name} does not answer at {places[name]}: its pictures are left as they are\n")
    take([shot for shot in wanted if not is_needed_by(shot, missing)], places, options.images)
    return 1 if missing else 0


def take(shots: Sequence[Shot], places: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browsing(Path(profile)) as page:
        for shot in shots:
            file = folder / f"{shot.name}.png"
            photograph(page, shot, shot.page.format(**places), file)
            size = file.stat().st_size
            sys.stdout.write(f"{file.name}: {size:,} bytes\n")
            if size > MOST_BYTES:
                raise ValueError(
                    f"{file}: expected at most {MOST_BYTES:,} bytes, got {size:,}: make the picture smaller"
                )


def photograph(page: Browser, shot: Shot, url: str, file: Path) -> None:
    page.open(url, width=shot.width, height=shot.height, dark=shot.dark)
    eventually(
        lambda: all(text in page.evaluate(TEXT) for text in shot.shows) and page.evaluate(shot.ready),
        f"{url} shows {', '.join(shot.shows) or shot.ready}",
        within_s=SHOWN_WITHIN_S,
    )
    settle(page, file)
    shrink(file)


def shrink(file: Path) -> None:
    """256 colours are enough for a user interface, the rare ones included, and a third of the bytes."""
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def settle(page: Browser, file: Path) -> None:
    """Take pictures until two are the same, or for a few seconds of something that moves."""
    seen: list[bytes] = []

    def is_still() -> bool:
        page.screenshot(file)
        seen.append(file.read_bytes())
        return len(seen) > 1 and seen[-1] == seen[-2]

    try:
        eventually(is_still, "the page comes to rest", within_s=SETTLED_WITHIN_S)
    except AssertionError:
        return


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30):  # noqa: S310  # the demo's
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError):
        return False


def is_needed(name: str, shots: Sequence[Shot]) -> bool:
    return any(is_needed_by(shot, [name]) for shot in shots)


def is_needed_by(shot: Shot, names: Sequence[str]) -> bool:
    return any(f"{{{name}}}" in shot.page for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
