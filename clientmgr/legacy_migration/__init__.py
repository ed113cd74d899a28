"""Moving a customer from DynamoDB, the legacy store, to PostgreSQL: import, comparison, and the stages between them."""
