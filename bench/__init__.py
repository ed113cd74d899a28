"""Benchmarks: ours, the peers' and the physical limit, doing the same checked work side by side in one run.

Every module or package directly in here is a benchmark: a docstring and `run(options: Options) -> list[Comparison]`.
`harness` is what they share, `peers` what belongs to other people's software.
"""
