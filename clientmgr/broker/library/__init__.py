"""The log for programs that are not ours: their database, their login, their threads. docs/library.md is for them."""
