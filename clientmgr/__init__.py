"""Client Manager: device data on a multi-tenant push platform. The domain and its stores; no Dagster, no daemons."""
