"""Prometheus metrics of messages, shared by the transports. They change once per settled batch, not per message."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

PUBLISHED: Final = Counter("clientmgr_messages_published_total", "Messages published.", ["topic"])
CONSUMED: Final = Counter("clientmgr_messages_consumed_total", "Messages done with.", ["topic", "subscription"])
RETRIED: Final = Counter("clientmgr_messages_retried_total", "Messages to come again.", ["topic", "subscription"])
PUT_OFF: Final = Counter(
    "clientmgr_messages_put_off_total",
    "Messages put off without an attempt: not due yet, their customer is not active yet, or one before them failed.",
    ["topic", "subscription"],
)
DEAD: Final = Counter("clientmgr_messages_dead_total", "Messages set aside for good.", ["topic", "subscription"])
ERASED_PASSED: Final = Counter(
    "clientmgr_messages_erased_passed_total", "Erased messages that a reader passed instead of handling them."
)
BATCH_FAILURES: Final = Counter(
    "clientmgr_batch_failures_total", "Batches whose handler failed.", ["topic", "subscription", "kind"]
)

LAG_MESSAGES: Final = Gauge("clientmgr_subscription_lag_messages", "Messages not yet read.", ["topic", "subscription"])
LAG_SECONDS: Final = Gauge(
    "clientmgr_subscription_lag_seconds", "Age of the oldest message not yet read.", ["topic", "subscription"]
)

WAITING_RETRIES: Final = Gauge(
    "clientmgr_waiting_retries", "Messages put aside until their time comes.", ["topic", "subscription"]
)
DEAD_LETTERS: Final = Gauge(
    "clientmgr_dead_letters", "Dead letters that nobody has replayed or dropped.", ["topic", "subscription"]
)
PAUSED: Final = Gauge("clientmgr_subscription_paused", "1: somebody has paused it.", ["topic", "subscription"])
_OF_SUBSCRIPTIONS: Final = (LAG_MESSAGES, LAG_SECONDS, WAITING_RETRIES, DEAD_LETTERS, PAUSED)

BATCH_MESSAGES: Final = Histogram(
    "clientmgr_batch_messages",
    "Messages in a batch.",
    ["topic", "subscription"],
    buckets=(1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000),
)
HANDLING_SECONDS: Final = Histogram(
    "clientmgr_batch_handling_seconds",
    "From the batch's claim to its settlement.",
    ["topic", "subscription"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


def expect_published(topics: Iterable[str]) -> None:
    """Start the topics' counters at 0.

    Prometheus does not count the first value of a series as growth: an alert on growth would miss the first messages.
    """
    for topic in topics:
        PUBLISHED.labels(topic)


class SubscriptionMetrics:
    """The metrics of one subscription, looked up once."""

    def __init__(self, topic: str, subscription: str) -> None:
        self._topic = topic
        self._subscription = subscription
        self._consumed = CONSUMED.labels(topic, subscription)
        self._retried = RETRIED.labels(topic, subscription)
        self._put_off = PUT_OFF.labels(topic, subscription)
        self._dead = DEAD.labels(topic, subscription)
        self._batch_messages = BATCH_MESSAGES.labels(topic, subscription)
        self._handling = HANDLING_SECONDS.labels(topic, subscription)

    def settled(self, *, done: int, retried: int, put_off: int, dead: int, seconds: float) -> None:
        self._batch_messages.observe(done + retried + put_off + dead)
        self._handling.observe(seconds)
        if done:
            self._consumed.inc(done)
        if retried:
            self._retried.inc(retried)
        if put_off:
            self._put_off.inc(put_off)
        if dead:
            self._dead.inc(dead)

    def put_off(self, messages: int) -> None:
        self._put_off.inc(messages)

    def failed(self, kind: str) -> None:
        BATCH_FAILURES.labels(self._topic, self._subscription, kind).inc()


def set_lag(
    topic: str, subscription: str, *, messages: int, seconds: float, waiting: int, dead: int, paused: bool
) -> None:
    for gauge, value in zip(_OF_SUBSCRIPTIONS, (messages, seconds, waiting, dead, paused), strict=True):
        gauge.labels(topic, subscription).set(value)


def forget_lag(topic: str, subscription: str) -> None:
    """Remove the gauges of a deleted subscription: their last values would stay, and raise alarms, for ever."""
    for gauge in _OF_SUBSCRIPTIONS:
        gauge.remove(topic, subscription)
