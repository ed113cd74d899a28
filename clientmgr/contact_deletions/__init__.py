"""Deleted contacts: from the customers' BigQuery table to messages for the contact-deletion worker."""
