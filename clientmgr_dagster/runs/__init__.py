"""Runs as processes: who still wants a run, whether its process lives, and what ends it."""
