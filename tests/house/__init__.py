"""The house itself: what is stated once, and what it costs to add to it."""
