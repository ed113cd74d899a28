"""Customers and their schemas: what a customer id is, who is registered, and the DDL of `tenant_<customerId>`."""
