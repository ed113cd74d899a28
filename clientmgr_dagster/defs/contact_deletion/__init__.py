"""Contact deletion: what customers deleted in BigQuery, as messages for the contact-deletion worker."""
