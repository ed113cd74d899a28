"""The operations as pages."""
