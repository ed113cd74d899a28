"""Orphans: devices that have had no contact for too long. Which of them may be deleted, and their deletion."""
