"""The dashboard: every tenant's numbers, their history, and the checks on them."""
