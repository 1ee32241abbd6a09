"""Benchmarks: figures that are measured and reported, never asserted in tests."""
