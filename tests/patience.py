"""Timeouts of tests, for machines that are ten times slower."""

HUNG = 1200.0
"""Seconds after which a process that has not ended is taken for one that never will."""

SOON = 60.0
"""Seconds for what takes a few on an idle machine, where the alternative takes hours."""
