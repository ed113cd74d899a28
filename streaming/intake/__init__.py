"""The HTTP intake: devices' events by HTTP, each of them the writer's message. docs/intake.md describes it."""
