"""Realistic, seeded traffic for the demo, the tests and the benchmarks."""
