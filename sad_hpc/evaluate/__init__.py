"""Evaluation on test tasks: offline, online and reference policies."""

from sad_hpc.evaluate.element import evaluate

__all__ = ["evaluate"]
