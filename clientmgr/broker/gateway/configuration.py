"""Subscriptions and topics as Google's API describes them: defaults filled in, limits checked, and what SQL needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from google.protobuf import field_mask_pb2, json_format

from clientmgr.base.logs import get_logger
from clientmgr.broker.gateway.filters import compile_filter
from clientmgr.broker.gateway.labels import check_labels
from clientmgr.broker.gateway.names import check_subscription, topic_parts
from clientmgr.broker.gateway.protos import Proto, Subscription, Topic
from clientmgr.broker.gateway.refusals import invalid, unimplemented

log = get_logger(__name__)

MINUTE, DAY = 60, 86_400
DEFAULT_ACK_DEADLINE_S = 10
MIN_ACK_DEADLINE_S, MAX_ACK_DEADLINE_S = 10, 600
DEFAULT_RETENTION_S = 7 * DAY
MIN_RETENTION_S, MAX_RETENTION_S = 10 * MINUTE, 31 * DAY
DEFAULT_MIN_BACKOFF_S, DEFAULT_MAX_BACKOFF_S, BACKOFF_LIMIT_S = 10, 600, 600
DEFAULT_DELIVERY_ATTEMPTS, MIN_DELIVERY_ATTEMPTS, MAX_DELIVERY_ATTEMPTS = 5, 5, 100

_ELSEWHERE = ("bigquery_config", "cloud_storage_config", "bigtable_config", "analytics_hub_subscription_info")
_CHANGEABLE = {
    "ack_deadline_seconds", "retain_acked_messages", "message_retention_duration", "labels", "expiration_policy",
    "dead_letter_policy", "retry_policy", "enable_exactly_once_delivery", "push_config", "tags", "message_transforms",
    *_ELSEWHERE,
}  # fmt: skip
_TOPIC_ELSEWHERE = ("schema_settings", "ingestion_data_source_settings")
_TOPIC_CHANGEABLE = {
    "labels", "message_retention_duration", "message_storage_policy", "kms_key_name", "tags", "message_transforms",
    *_TOPIC_ELSEWHERE,
}  # fmt: skip
# What we take and keep, and why nothing comes of it.
_WITHOUT_EFFECT = {
    "expiration_policy": "subscriptions do not expire here",
    "message_storage_policy": "the messages are where the database is",
    "kms_key_name": "messages are not encrypted with keys of Google's; encrypt the database's disk",
    "tags": "there is no policy that goes by tags",
}


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """The columns of gateway_subscriptions that our code needs."""

    id: int
    name: str
    topic: str
    topic_id: int
    config: dict[str, Any]
    ordered: bool
    exactly_once: bool
    dead_letter_topic: str | None
    max_delivery_attempts: int | None
    tenants: list[str] | None
    """The customers whose messages it delivers. None: all."""
    detached: bool = False
    """From its topic, for good."""

    @property
    def ack_deadline(self) -> timedelta:
        return timedelta(seconds=self.config["ackDeadlineSeconds"])

    def proto(self) -> Proto:
        message = json_format.ParseDict(self.config, Subscription(), ignore_unknown_fields=True)
        message.name = self.name
        message.topic = self.topic
        message.detached = self.detached
        message.state = 1  # ACTIVE
        return message


def normalised_subscription(wanted: Proto) -> Proto:
    """A copy with Google's defaults for unset fields. Refuses what we do not support, by name."""
    check_subscription(wanted.name)
    for field in _ELSEWHERE:
        # Without a word in it, it says that there is no such delivery.
        if wanted.HasField(field) and getattr(wanted, field).ListFields():
            raise unimplemented(f"Delivery by {field}")
    refuse_push(wanted.push_config)
    _refuse_transforms(wanted)
    check_labels(wanted.labels)
    result = Subscription()
    result.CopyFrom(wanted)
    for field in ("push_config", "detached", "state", "topic_message_retention_duration", *_ELSEWHERE):
        result.ClearField(field)
    result.ack_deadline_seconds = result.ack_deadline_seconds or DEFAULT_ACK_DEADLINE_S
    check_ack_deadline("ack_deadline_seconds", result.ack_deadline_seconds)
    if not result.HasField("message_retention_duration"):
        result.message_retention_duration.seconds = DEFAULT_RETENTION_S
    _check_range(
        "message_retention_duration", _seconds(result.message_retention_duration), MIN_RETENTION_S, MAX_RETENTION_S
    )
    if result.expiration_policy.HasField("ttl"):
        ttl = _seconds(result.expiration_policy.ttl)
        if ttl < DAY:
            raise invalid(f"Invalid expiration_policy.ttl: {ttl:g} given, at least {DAY} (a day) allowed.")
    if result.HasField("retry_policy"):
        policy = result.retry_policy
        if not policy.HasField("minimum_backoff"):
            policy.minimum_backoff.seconds = DEFAULT_MIN_BACKOFF_S
        if not policy.HasField("maximum_backoff"):
            policy.maximum_backoff.seconds = DEFAULT_MAX_BACKOFF_S
        minimum, maximum = _seconds(policy.minimum_backoff), _seconds(policy.maximum_backoff)
        _check_range("retry_policy.minimum_backoff", minimum, 0, BACKOFF_LIMIT_S)
        _check_range("retry_policy.maximum_backoff", maximum, minimum, BACKOFF_LIMIT_S)
    if result.HasField("dead_letter_policy"):
        dead = result.dead_letter_policy
        topic_parts(dead.dead_letter_topic)
        dead.max_delivery_attempts = dead.max_delivery_attempts or DEFAULT_DELIVERY_ATTEMPTS
        _check_range(
            "dead_letter_policy.max_delivery_attempts",
            dead.max_delivery_attempts,
            MIN_DELIVERY_ATTEMPTS,
            MAX_DELIVERY_ATTEMPTS,
        )
    return result


def subscription_columns(config: Proto) -> dict[str, Any]:
    """What SQL needs of a normalised subscription, by column."""
    retry = config.retry_policy if config.HasField("retry_policy") else None
    dead = config.dead_letter_policy if config.HasField("dead_letter_policy") else None
    return {
        "config": json_format.MessageToJson(config, indent=None),
        "filter": compile_filter(config.filter),
        "ordered": config.enable_message_ordering,
        "exactly_once": config.enable_exactly_once_delivery,
        "ack_deadline": timedelta(seconds=config.ack_deadline_seconds),
        "minimum_backoff": retry and _timedelta(retry.minimum_backoff),
        "maximum_backoff": retry and _timedelta(retry.maximum_backoff),
        "dead_letter_topic": dead and dead.dead_letter_topic,
        "max_delivery_attempts": dead and dead.max_delivery_attempts,
        "retention": _timedelta(config.message_retention_duration),
        "retain_acked": config.retain_acked_messages,
    }


def changed_subscription(current: Proto, wanted: Proto, mask: Proto) -> Proto:
    """`current` with the masked fields of `wanted`, normalised."""
    return normalised_subscription(masked_fields(current, wanted, mask, _CHANGEABLE))


def normalised_topic(wanted: Proto) -> Proto:
    topic_parts(wanted.name)
    for field in _TOPIC_ELSEWHERE:
        if wanted.HasField(field) and getattr(wanted, field).ListFields():
            raise unimplemented(f"A topic with {field}")
    _refuse_transforms(wanted)
    check_labels(wanted.labels)
    if wanted.HasField("message_retention_duration"):
        retention = _seconds(wanted.message_retention_duration)
        _check_range("message_retention_duration", retention, MIN_RETENTION_S, MAX_RETENTION_S)
    result = Topic()
    result.CopyFrom(wanted)
    for field in ("state", *_TOPIC_ELSEWHERE):
        result.ClearField(field)
    return result


def topic_columns(config: Proto) -> dict[str, Any]:
    has_retention = config.HasField("message_retention_duration")
    return {
        "config": json_format.MessageToJson(config, indent=None),
        "retention": _timedelta(config.message_retention_duration) if has_retention else None,
    }


def changed_topic(current: Proto, wanted: Proto, mask: Proto) -> Proto:
    return normalised_topic(masked_fields(current, wanted, mask, _TOPIC_CHANGEABLE))


def topic_proto(name: str, config: dict[str, Any] | None) -> Proto:
    """A topic as the API shows it. `config` is None for a topic that was made on the log itself."""
    message = json_format.ParseDict(config or {}, Topic(), ignore_unknown_fields=True)
    message.name = name
    message.state = 1  # ACTIVE
    return message


def note_without_effect(resource: Proto, fields: Iterable[str]) -> None:
    """Say in the log which of these settings were taken and change nothing here."""
    for field in fields:
        why = _WITHOUT_EFFECT.get(field)
        if why is not None:
            log.warning("a setting is kept but changes nothing", resource=resource.name, setting=field, because=why)


def refuse_push(push_config: Proto) -> None:
    """UNIMPLEMENTED, where it names somebody to push to."""
    if push_config.push_endpoint:
        raise unimplemented("Push delivery (push_config.push_endpoint)")


def _refuse_transforms(wanted: Proto) -> None:
    if any(not transform.disabled for transform in wanted.message_transforms):
        raise unimplemented("A message transform (message_transforms)")


def masked_fields(current: Proto, wanted: Proto, mask: Proto, changeable: set[str]) -> Proto:
    """`current` with the masked fields of `wanted`. INVALID_ARGUMENT: the mask is empty, or has others."""
    paths = list(mask.paths)
    if not paths:
        raise invalid("The update_mask in the request is empty: name the fields to change.")
    for path in paths:
        if path.partition(".")[0] not in changeable:
            raise invalid(f"Invalid update_mask provided in the request: {path} is not a field that can be changed.")
    result = type(current)()
    result.CopyFrom(current)
    try:
        field_mask_pb2.FieldMask(paths=paths).MergeMessage(
            wanted, result, replace_message_field=True, replace_repeated_field=True
        )
    except ValueError as error:
        raise invalid(f"Invalid update_mask provided in the request: {error}.") from None
    return result


def check_ack_deadline(field: str, seconds: int) -> None:
    _check_range(field, seconds, MIN_ACK_DEADLINE_S, MAX_ACK_DEADLINE_S)


def _check_range(field: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise invalid(f"Invalid {field}: {value:g} given, {low:g} to {high:g} allowed.")


def _seconds(duration: Proto) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _timedelta(duration: Proto) -> timedelta:
    return timedelta(seconds=_seconds(duration))
