"""The house: its layers hold, and what people usually add costs as few files as the guide says."""
