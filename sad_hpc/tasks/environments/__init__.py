"""Gymnasium environments as simulators that can be copied in the middle of an episode."""
