"""Stand-ins for stores that we do not own, BigQuery and DynamoDB, for tests. Never for anything else."""
