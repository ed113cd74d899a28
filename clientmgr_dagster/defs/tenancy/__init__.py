"""Tenants: their schemas as assets, and the sensor that keeps Dagster's partitions equal to the registry."""
