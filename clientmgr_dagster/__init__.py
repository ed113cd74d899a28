"""The Dagster code location: a thin shell around `clientmgr`. It never imports `streaming`."""
