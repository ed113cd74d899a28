"""Messages that failed, wherever they lie, under one set of names and filters: found, replayed, edited, dropped."""
