"""Tenant metrics: every tenant's numbers, their history, and the checks on them."""
