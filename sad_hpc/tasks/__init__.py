"""Task families: distributions over reinforcement-learning tasks."""
