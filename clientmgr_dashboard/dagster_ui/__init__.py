"""Dagster's web application behind the dashboard's guard: the same users and sessions, and an audit row per change."""
