"""Prometheus metrics of the device mapper. Counted for some hundred contacts at a time, never one by one."""

from typing import Final

from prometheus_client import Counter, Histogram

CONTACTS: Final = Counter(
    "clientmgr_device_mapper_contacts_total",
    "Contacts whose devices were looked up, by the strategy and by the store that had some.",
    ["strategy", "answered_by"],
)
FETCH_SECONDS: Final = Histogram(
    "clientmgr_device_mapper_fetch_seconds",
    "Time to find the devices of up to a thousand contacts.",
    ["store"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
SENT: Final = Counter("clientmgr_device_mapper_sent_total", "Messages for devices.", ["type", "provider"])
NOT_SENT: Final = Counter("clientmgr_device_mapper_not_sent_total", "Contacts that get nothing.", ["type", "reason"])
