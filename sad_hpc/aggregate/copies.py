"""Copies of all result files in a results folder, which is kept for good."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sad_hpc.evaluate.result import Result
from sad_hpc.evaluate.result_file import read_origin_of, write_result
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.rows import slug


def copy_results(results: Sequence[Result], folder: Path) -> None:
    """Writes <row>-seed<seed>.h5 for every result.

    A reference policy does the same on the same tasks beside every row, and would take half of
    the folder: only the first file that has some values of a reference keeps them.
    """
    kept: set[bytes] = set()
    for result in results:
        modes = {}
        for mode, part in result.modes.items():
            own = {}
            for name, values in part.references.items():
                content = f"{result.seed} {mode} {name}".encode() + values.tobytes()
                if (digest := hashlib.blake2b(content).digest()) not in kept:
                    kept.add(digest)
                    own[name] = values
            counted = part.reference_context_rewards
            modes[mode] = replace(
                part,
                references=own,
                reference_context_rewards={name: counted[name] for name in counted if name in own},
            )
        attributes, tasks = read_origin_of(result)
        if result.method not in METHODS:  # the file itself knows its method alone
            attributes["row"] = result.method
        write_result(
            folder / f"{slug(result.method)}-seed{result.seed}.h5", attributes, tasks, modes
        )
