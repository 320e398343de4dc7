"""Frozen facts. No I/O, no clock, no environment: a factory takes `now`."""
