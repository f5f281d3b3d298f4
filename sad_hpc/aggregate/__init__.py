"""Tables and figures of an experiment, from the result files of all its elements."""
