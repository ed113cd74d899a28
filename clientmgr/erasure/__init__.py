"""Nothing is left of what was deleted: finds the messages and rows that are about it, and erases them."""
