"""The append-only audit log, and the proof that nobody changed it."""
