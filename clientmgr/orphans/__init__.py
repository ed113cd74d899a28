"""Orphans: devices without a contact that fell silent. Which of them may be deleted, and their deletion."""
