"""Dagster's daemon as `up` runs it: it looks where PostgreSQL says that something is new, and seldom elsewhere."""
