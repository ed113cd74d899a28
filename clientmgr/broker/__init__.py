"""Messages: one interface, two transports. `interface` is all that a worker knows of them."""
