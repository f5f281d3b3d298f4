"""Hypothesis tries the same cases every time, however slow the machine is."""

from hypothesis import settings

settings.register_profile("seeded", derandomize=True, deadline=None, database=None, max_examples=50)
settings.load_profile("seeded")
