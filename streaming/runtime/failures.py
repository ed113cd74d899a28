"""What becomes of a message that failed: passed on unchanged, with attributes that say what was wrong."""

from collections.abc import Mapping

from clientmgr.base.errors import InvalidInputError
from clientmgr.broker.interface import MAX_ATTRIBUTE_VALUE_BYTES, Batch, Dead, Done, Outcome, ReceivedMessage


def pass_on(
    batch: Batch, message: ReceivedMessage, topic: str, attributes: Mapping[str, str], error: BaseException
) -> Outcome:
    """Publish the message, as it came, to `topic` together with the batch."""
    try:
        batch.forward(topic, message, attributes)
    except InvalidInputError:
        # It already has as many attributes as a message may have: there is no room for the error.
        return Dead(str(error), type(error).__name__)
    return Done()


def error_attributes(error: BaseException) -> dict[str, str]:
    """`error` and `errorClass`, cut to what an attribute may hold."""
    return {"error": _cut(str(error).strip() or type(error).__name__), "errorClass": type(error).__name__}


def _cut(text: str) -> str:
    data = text.replace("\0", "").encode()
    return data[:MAX_ATTRIBUTE_VALUE_BYTES].decode(errors="ignore")
