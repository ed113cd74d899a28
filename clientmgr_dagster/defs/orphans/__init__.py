"""Orphans: which devices without a contact fell silent, and their deletion."""
