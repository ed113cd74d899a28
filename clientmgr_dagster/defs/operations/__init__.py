"""Dagster looking after itself and the daemons: pruning, failures, health, the audit log's proof."""
