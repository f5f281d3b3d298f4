"""Shared parts of compiled code: its cache, its random numbers, its interruption."""

from sad_hpc.kernels import compilation  # noqa: F401 (first: it sets the cache folder)
