"""Lineage of what Dagster does not compute: the daemons, the tables they write, and what they did, seen from there."""
