"""How frames reach the sockets of many connections. `auto` chooses a sender; others know only the `interface`."""
