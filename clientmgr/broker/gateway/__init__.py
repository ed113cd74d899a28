"""A Pub/Sub server on the PostgreSQL log: Google's clients, in any language, talk `google.pubsub.v1` to it.

`server.serve` runs it. The messages are the log's; `sql/gateway` holds what a subscription has in hand.
"""
