"""Tables, figures and pages of experiments, from the result files of all elements."""
