"""deploy/ and the documentation that goes with it, held against the code."""
