"""The durable writer of positions."""
