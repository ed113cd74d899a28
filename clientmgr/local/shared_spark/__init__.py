"""One Spark Connect server for all runs of a machine: started by the first that connects, stopped when nobody does."""
