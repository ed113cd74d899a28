"""The numbers of each tenant and their history: reading and checking them. Spark collects them."""
