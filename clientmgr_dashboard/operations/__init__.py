"""What can be asked for and done: one function each. Pages and API both call it.

A module lists its operations in `OPERATIONS`; a page names them in its `PAGE`, and the API serves what pages name.
"""
