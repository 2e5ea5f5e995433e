"""Benchmarks: lists of trials, a store that survives anything, tables one can trust."""
