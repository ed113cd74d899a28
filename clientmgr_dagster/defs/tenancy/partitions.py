"""The partitions that all per-tenant assets share: one key per registered customer."""

import dagster as dg

tenants_partitions = dg.DynamicPartitionsDefinition(name="tenants")
