"""What is done with the project rather than by it: generated documentation, screenshots, set-up scripts."""
