"""What the intake measures."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("clientmgr_intake_requests_total", "Requests that were answered, by status.", ("status",))
EVENTS = Counter("clientmgr_intake_events_total", "Events that are in the log, answered with 202.")
SECONDS = Histogram(
    "clientmgr_intake_seconds",
    "From a request's last byte to its 202: the event is in the log by then.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
CONNECTIONS = Gauge("clientmgr_intake_connections", "Connections to the intake.")
TURNED_AWAY = Counter(
    "clientmgr_intake_turned_away_total", "Connections that were closed before they got an answer, by reason.", ("why",)
)
KEYS = Gauge("clientmgr_intake_keys", "Keys that are let in.")
