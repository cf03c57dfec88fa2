"""Measurements of speed. Each is a module to run, prints a table and writes its numbers below `benchmarks/results/`."""
