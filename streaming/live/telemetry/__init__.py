"""The durable writer: positions from the Redis stream to PostgreSQL. See docs/live.md."""
