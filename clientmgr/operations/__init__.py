"""What operators ask of the system as a whole: its health, its nightly jobs, its maintenance."""
