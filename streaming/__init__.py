"""Long-running daemons on messages. They import `clientmgr`, never `clientmgr_dagster`."""
