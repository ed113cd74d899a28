"""What everything stands on: settings, errors, the database, SQL files, logs, time. It knows no domain."""
