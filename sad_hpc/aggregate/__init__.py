"""Tables and figures of an experiment, from the result files of all its elements."""

from sad_hpc.aggregate.readme import headline_table
from sad_hpc.aggregate.report import overview
from sad_hpc.aggregate.stage import aggregate

__all__ = ["aggregate", "headline_table", "overview"]
