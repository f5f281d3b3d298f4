"""Evaluation on test tasks: offline, online and reference policies."""
