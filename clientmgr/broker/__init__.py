"""Messages: one interface, two transports. `interface` is all that a worker knows; `postgres` and `pubsub` stand behind it."""
