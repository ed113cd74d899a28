"""Spark: session, data sources, writer, and the transforms as plain functions. Only the session knows Dagster."""
