"""The transport on PostgreSQL: a log per topic, in the same database and the same transactions as the work itself."""
