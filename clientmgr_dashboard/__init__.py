"""The dashboard: what operators look at, and what they do about it, as pages and as an API."""
