"""DynamoDB, the legacy store of devices. We only read it, until customers no longer need it."""
