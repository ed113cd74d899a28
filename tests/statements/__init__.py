"""What the tests' PostgreSQL server was sent: no statement reaches two tenants, or one by accident."""
