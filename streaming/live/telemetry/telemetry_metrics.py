"""What the durable writer counts, and how far it is behind."""

from prometheus_client import Counter, Gauge

_LABELS = ("instance_id",)

READ = Counter("processor_telemetry_records_total", "Entries of the stream taken in hand.", _LABELS)
WRITTEN = Counter("processor_telemetry_positions_total", "Positions written.", _LABELS)
DUPLICATES = Counter("processor_telemetry_duplicates_total", "Positions that were there already.", _LABELS)
REJECTED = Counter("processor_telemetry_rejected_total", "Entries parked in live.rejected_records.", _LABELS)
CLAIMED = Counter("processor_telemetry_claimed_total", "Entries taken over from a dead consumer.", _LABELS)

STREAM_LENGTH = Gauge("processor_telemetry_stream_length", "Entries in the stream.")
STREAM_LAG = Gauge("processor_telemetry_stream_lag", "Entries that the durable group has not read. NaN: not known.")
STREAM_PENDING = Gauge("processor_telemetry_stream_pending", "Entries read and not yet durable.")
STREAM_LOST = Counter(
    "processor_telemetry_stream_lost_total",
    "Entries that somebody else trimmed away before they were durable. Every writer counts those that it sees missing.",
)
