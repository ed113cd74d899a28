"""Devices: the events about them, what they add up to in whatever order they come, and the tables they are kept in."""
