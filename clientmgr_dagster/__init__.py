"""The Dagster code location: a thin shell around `clientmgr`. It never imports `streaming`.

Nor Dagster, right here: Spark's workers import `clientmgr_dagster.spark`, and Dagster takes seconds to import.
"""
