"""What Huawei documents of the body of Push Kit's `messages:send`, as a table of members. Knows nothing of our code.

https://developer.huawei.com/consumer/en/doc/HMSCore-References/https-send-api-0000001050986197 (v1 and v2 have the same
body), with what Huawei's own server SDKs check before they send (github.com/HMS-Core/hms-push-serverdemo-go, `verify`).
Of `apns`, `webpush` and the rest that nobody here sends there is nothing: what is not in the table is refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Rule = Callable[[Any], bool]

MOST_BYTES = 4096
"""Of the message without its tokens."""
LONGEST_TTL_S = 15 * 86_400


def text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def boolean(value: Any) -> bool:
    return isinstance(value, bool)


def members(value: Any) -> bool:
    return isinstance(value, dict)


def matching(pattern: str) -> Rule:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None


def integer(lowest: int, highest: int) -> Rule:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def texts(fewest: int, most: int) -> Rule:
    return lambda value: isinstance(value, list) and fewest <= len(value) <= most and all(map(text, value))


def time_to_live(value: Any) -> bool:
    return matching(r"\d+s")(value) and int(value[:-1]) <= LONGEST_TTL_S


HTTPS = matching(r"[hH][tT][tT][pP][sS]://.+")
SHOWN = "message.android.notification"

MEMBERS: dict[str, Rule] = {
    "validate_only": boolean,
    "message": members,
    "message.data": text,
    "message.token": texts(1, 1000),
    "message.android": members,
    "message.android.collapse_key": integer(-1, 100),
    "message.android.urgency": matching("HIGH|NORMAL"),
    "message.android.category": text,
    "message.android.ttl": time_to_live,
    "message.android.bi_tag": text,
    "message.android.fast_app_target": integer(1, 2),
    "message.android.data": text,
    SHOWN: members,
    f"{SHOWN}.title": text,
    f"{SHOWN}.body": text,
    f"{SHOWN}.icon": matching(r"/raw/.+"),
    f"{SHOWN}.color": matching("#[0-9A-Fa-f]{6}"),
    f"{SHOWN}.sound": text,
    f"{SHOWN}.default_sound": boolean,
    f"{SHOWN}.tag": text,
    f"{SHOWN}.importance": matching("LOW|NORMAL|HIGH"),
    f"{SHOWN}.click_action": members,
    f"{SHOWN}.click_action.type": integer(1, 3),
    f"{SHOWN}.click_action.intent": text,
    f"{SHOWN}.click_action.action": text,
    f"{SHOWN}.click_action.url": HTTPS,
    f"{SHOWN}.channel_id": text,
    f"{SHOWN}.notify_summary": text,
    f"{SHOWN}.image": HTTPS,
    f"{SHOWN}.style": lambda value: value in (0, 1, 3),
    f"{SHOWN}.notify_id": integer(-(2**31), 2**31 - 1),
    f"{SHOWN}.group": text,
    f"{SHOWN}.badge": members,
    f"{SHOWN}.badge.add_num": integer(1, 99),
    f"{SHOWN}.badge.set_num": integer(0, 99),
    f"{SHOWN}.badge.class": text,
    f"{SHOWN}.visibility": matching("VISIBILITY_UNSPECIFIED|PRIVATE|PUBLIC|SECRET"),
    f"{SHOWN}.foreground_show": boolean,
}
MANDATORY = (
    "message",
    "message.token",
    f"{SHOWN}.title",
    f"{SHOWN}.body",
    f"{SHOWN}.click_action",
    f"{SHOWN}.click_action.type",
)
"""Where what they are members of is there."""
NEEDED_FOR_TYPE = {1: ("intent", "action"), 2: ("url",), 3: ()}
"""Of a click action: one of these."""


def violations(request: dict[str, Any]) -> list[str]:
    """The places where a request is not as documented."""
    found = dict(walk(request, ""))
    wrong = [path for path, value in found.items() if path not in MEMBERS or not MEMBERS[path](value)]
    for path in MANDATORY:
        parent = path.rpartition(".")[0]
        if path not in found and (not parent or parent in found):
            wrong.append(path)
    click_action = found.get(f"{SHOWN}.click_action")
    if isinstance(click_action, dict):
        needed = NEEDED_FOR_TYPE.get(click_action.get("type", 0), ())
        if needed and not any(name in click_action for name in needed):
            wrong.append(f"{SHOWN}.click_action.{needed[0]}")
    if "message.android" not in found and "message.data" not in found:
        wrong.append("message")
    without_tokens = {name: value for name, value in request.get("message", {}).items() if name != "token"}
    if len(json.dumps(without_tokens, ensure_ascii=False, separators=(",", ":")).encode()) > MOST_BYTES:
        wrong.append("message: larger than 4096 bytes")
    return wrong


def walk(value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        yield f"{prefix}{name}", item
        if isinstance(item, dict):
            yield from walk(item, f"{prefix}{name}.")
