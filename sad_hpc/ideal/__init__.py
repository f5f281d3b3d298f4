"""The ideal learner: exact posteriors over a family's tasks, all that a context can tell."""
