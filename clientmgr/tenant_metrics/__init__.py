"""The dashboard's numbers: what is asked of them and of their history. Collecting them is Spark's work."""
