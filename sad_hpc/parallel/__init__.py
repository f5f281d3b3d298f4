"""Parallel processes: ranks, their rendezvous, signals and teardown."""
