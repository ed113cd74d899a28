"""Who may see and do what: users, sessions, and the guard that every request passes."""
