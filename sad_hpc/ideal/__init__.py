"""The Bayes-optimal learner: exact posteriors over the tasks of a family, given a context."""
