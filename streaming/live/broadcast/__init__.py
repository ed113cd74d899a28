"""Live broadcast: positions from a Redis stream to whoever watches their event over a WebSocket. See docs/live.md."""
