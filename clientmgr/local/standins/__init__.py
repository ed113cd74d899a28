"""Stand-ins for stores that we do not own, BigQuery and DynamoDB, for tests and the demo. Never for anything else."""
