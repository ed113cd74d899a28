"""PostgreSQL, a Redis protocol server and Java for a machine that has none: no Docker, no root, one folder."""
