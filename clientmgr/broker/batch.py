"""What a handler gets: the messages, the open transaction, and a place to leave messages to publish with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from clientmgr.broker.interface import Message, ReceivedMessage, check_attributes
from clientmgr.broker.message_checks import check_messages


class TransactionBatch:
    """Implements `interface.Batch`."""

    def __init__(
        self,
        subscription: str,
        messages: Sequence[ReceivedMessage],
        connection: AsyncConnection[Any],
        *,
        max_message_bytes: int,
    ) -> None:
        self._subscription = subscription
        self._messages = messages
        self._connection = connection
        self._max_message_bytes = max_message_bytes
        self._publications: dict[str, list[Message]] = {}

    @property
    def subscription(self) -> str:
        return self._subscription

    @property
    def messages(self) -> Sequence[ReceivedMessage]:
        return self._messages

    @property
    def connection(self) -> AsyncConnection[Any]:
        return self._connection

    @property
    def publications(self) -> Mapping[str, Sequence[Message]]:
        """What the handler left to be published, by topic."""
        return self._publications

    def publish(self, topic: str, messages: Sequence[Message], *, encoded_here: bool = False) -> None:
        check_messages(topic, messages, self._max_message_bytes, encoded_here=encoded_here)
        # Kept until the very end: from the first append on, everyone else who publishes to the topic has to wait.
        if messages:
            self._publications.setdefault(topic, []).extend(messages)

    def forward(self, topic: str, message: ReceivedMessage, attributes: Mapping[str, str]) -> None:
        copy = Message(message.data, message.tenant, message.key, {**message.attributes, **attributes})
        # A transport has delivered it, so a log can hold it; only the attributes are new.
        self._check_attributes(copy)
        self._publications.setdefault(topic, []).append(copy)

    def _check_attributes(self, message: Message) -> None:
        check_attributes(message.attributes)
