"""The legacy store of devices, DynamoDB: read only, and on its way out."""
