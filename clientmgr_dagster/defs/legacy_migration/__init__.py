"""The way from DynamoDB to PostgreSQL, customer by customer."""
