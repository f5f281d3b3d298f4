"""A description of a run's trained models, for errors about a missing one."""

from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder

MOST_NAMED = 8


def trained_models(run: Run) -> str:
    """Describe which (row, seed)s are trained, and which folders hold models of other settings.

    Args:
        run: the run of an experiment, or of one of its rows.
    """
    whole = Run(run.whole or run.experiment, run.runs)
    expected = {element: whole.checkpoint(*element) for element in whole.experiment.elements}
    done = [f"{row} seed {seed}" for (row, seed), folder in expected.items() if folder.done]
    known = {folder.path for folder in expected.values()}
    parents = {path.parent for path in known}
    others = [
        path.name
        for parent in sorted(parents)
        for path in sorted(parent.glob("*"))
        if path not in known and StageFolder("pretrain", path).done
    ]
    text = f"trained models: {_few(done) if done else 'none'}"
    return f"{text}; trained with other settings: {_few(others)}" if others else text


def _few(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
