"""The process that serves our definitions to Dagster's daemon and webserver, and that runs are started from."""
