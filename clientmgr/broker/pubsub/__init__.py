"""The transport on Google Pub/Sub."""
