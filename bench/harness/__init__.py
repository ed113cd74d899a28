"""What the benchmarks share: a server of their own, fair measuring, the check for the same work, tables of ratios."""
