"""The documentation: what is made from the code is current, and what is linked is there."""
