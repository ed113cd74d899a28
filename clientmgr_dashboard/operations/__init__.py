"""What can be asked for and done: one function each, used by the pages and by the API alike."""
