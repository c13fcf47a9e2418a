"""Benchmarks: one package for each topic; README.md lists them. Run them in the root of the repository."""
