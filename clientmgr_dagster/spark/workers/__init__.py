"""Spark's Python workers, ready at once: forked from a process that has imported all that they need."""
