"""Spark: sessions, data sources, writer, and the jobs as plain functions. Session, pipes and submit know Dagster."""
