"""Child processes that never outlive us, and the supervisor that keeps them running."""
