"""Live positions: the broadcast to WebSocket subscribers and the durable writer beside it."""
