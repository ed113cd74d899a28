"""Places that anchors are kept in, a module for each kind, and the one function that makes them from AUDIT_ANCHORS."""
