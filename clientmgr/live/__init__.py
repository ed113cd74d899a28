"""What the daemons of live positions share with those who watch them: the stream and the tokens."""
