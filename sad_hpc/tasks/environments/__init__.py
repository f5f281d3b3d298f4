"""Any Gymnasium environment as a simulator that can be copied in the middle of an episode."""
