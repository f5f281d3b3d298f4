"""Experiments: config sections, rows of the tables, and checks across sections."""
