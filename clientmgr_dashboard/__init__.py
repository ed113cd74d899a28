"""The dashboard: the operators' web application, as pages and as an API."""
