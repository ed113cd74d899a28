"""The house: what is stated once is derived everywhere, and a new thing costs as few files as the guide says."""
