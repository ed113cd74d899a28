"""Pages of the List calls: sorted by name, the token is the last name given."""

import base64
import binascii
from collections.abc import Sequence

from clientmgr.broker.gateway.protos import Proto
from clientmgr.broker.gateway.refusals import invalid

MAX_PAGE = 1000


def page_of(request: Proto) -> tuple[int, str]:
    """(how many, after which name) the request asks for."""
    if request.page_size < 0:
        raise invalid(f"Invalid page_size: {request.page_size} given.")
    try:
        after = base64.urlsafe_b64decode(request.page_token).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid("Invalid page_token.") from None
    return min(request.page_size or MAX_PAGE, MAX_PAGE), after


def token_after(names: Sequence[str], limit: int) -> str:
    """For the page after the first `limit` of `names`; empty when that was the last one."""
    return base64.urlsafe_b64encode(names[limit - 1].encode()).decode() if len(names) > limit else ""
