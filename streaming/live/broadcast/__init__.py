"""Live broadcast: sends positions from a Redis stream to WebSocket clients that watch an event. See docs/live.md."""
