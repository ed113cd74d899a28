"""Devices from files: read, converted by field, and written by the same rules as events."""
