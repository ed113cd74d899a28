"""What `clientmgr demo` adds to the system."""
