"""Orphans: devices that have had no contact for too long. What is to be done with them, and doing it."""
