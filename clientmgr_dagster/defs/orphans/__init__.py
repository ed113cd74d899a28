"""Orphans: which devices have had no contact for too long, and their deletion."""
