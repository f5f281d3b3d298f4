"""Processes that work together: ranks, their first meeting, signals, and how they end."""
