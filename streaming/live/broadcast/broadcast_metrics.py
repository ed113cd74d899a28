"""What a broadcast instance measures. The first four names and the labels are fixed by contract."""

from prometheus_client import Counter, Gauge, Histogram

_INSTANCE = ("instance_id",)
_MILLISECONDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000)
_AGES = (*_MILLISECONDS[6:], 600_000, 3_600_000, 86_400_000)

RECORDS = Counter("processor_live_broadcast_records_total", "Records read from the stream.", _INSTANCE)
FANOUT = Counter("processor_live_broadcast_fanout_messages_total", "Position frames handed to connections.", _INSTANCE)
ORPHANS = Counter("processor_live_broadcast_orphan_records_total", "Records of devices in no event.", _INSTANCE)
LAG = Histogram(
    "processor_live_broadcast_lag_ms", "From the entry's stream id to its being sent.", buckets=_MILLISECONDS
)
FIX_AGE = Histogram("processor_live_broadcast_fix_age_ms", "From the fix to its being sent.", buckets=_AGES)
MALFORMED = Counter("processor_live_broadcast_malformed_records_total", "Records that can't be read.", _INSTANCE)
TOO_LARGE = Counter(
    "processor_live_broadcast_too_large_total", "Records above LIVE_MAX_RECORD_BYTES, dropped.", _INSTANCE
)
DROPPED = Counter(
    "processor_live_broadcast_dropped_total", "Connections closed for being too slow (1008).", ("instance_id", "reason")
)
CONFLATED = Counter(
    "processor_live_broadcast_conflated_total",
    "Frames replaced by a newer one before a slow client took them.",
    _INSTANCE,
)
OUTBOUND = Counter("liveMessagesOutbound", "Messages handed to connections, by the `type` that they have.", ("type",))
REFUSED = Counter("processor_live_refused_total", "Connections refused, by close code; 1006: cut off.", ("code",))
CONNECTIONS = Gauge("processor_live_connections", "WebSocket connections.")
UNAUTHENTICATED = Gauge("processor_live_unauthenticated", "Connections that have shown no token yet, plain HTTP too.")
TOPICS = Gauge("processor_live_topics", "Topics that somebody is subscribed to.")
MAP_DEVICES = Gauge("processor_live_device_event_map_devices", "Devices that take part in some event.")
MAP_REFRESH = Histogram(
    "processor_live_device_event_refresh_ms", "Time to read the map of devices to events.", buckets=_MILLISECONDS
)
MAP_REFRESHED_AT = Gauge("processor_live_device_event_refreshed_timestamp_seconds", "When the map was last read.")
MAP_FAILURES = Counter("processor_live_device_event_refresh_failures_total", "Reads of the map that failed.")
