"""Trained models to share: a folder with weights, card and page.

Model hubs show the folder unchanged: `model.safetensors` with the weights, `config.json` with all
that is needed to build the model and where it comes from, and a `README.md`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save

from sad_hpc.aggregate.markdown import markdown
from sad_hpc.errors import UserError
from sad_hpc.evaluate.policy import load_model
from sad_hpc.experiment.methods import METHODS
from sad_hpc.policies import PARTS
from sad_hpc.policy_card import CARD, WEIGHTS
from sad_hpc.storage import plain_json
from sad_hpc.storage.files import checksum, read_whole, typed, write_error, write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import METRICS, StageFolder
from sad_hpc.tasks.base import make_family

README = "README.md"


def export_policy(run: Run, row: str, seed: int, folder: Path) -> None:
    """Writes the trained model of a (row, seed) into a new or empty folder.

    Raises:
        UserError: there is something in the folder, it cannot be written, or the model sees images.
        CheckpointError: the model is not trained.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: choose another folder, or remove it")
    own, method = run.of_row(row)
    model, trained = load_model(own, method, seed), own.experiment.source
    if model.images is not None:
        raise UserError(f"models of {trained.task.family} see images: there is no export of these")
    metrics = _last_metrics(own.checkpoint(method, seed))
    weights = {name: part.detach().cpu().contiguous() for name, part in model.named_parameters()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stored = save(weights, metadata={"format": "pt"})
        (folder / WEIGHTS).write_bytes(stored)
        card = {
            "library_name": "sad_hpc",
            "experiment": trained.name,
            "row": row,
            "method": method,
            "seed": seed,
            "task": trained.task.model_dump(mode="json"),
            "data": trained.data.model_dump(mode="json"),
            "pretrain": trained.pretrain.model_dump(mode="json"),
            "model": trained.model.model_dump(mode="json"),
            "inputs": asdict(model.inputs),
            "longest_context": METHODS[method].longest_context(trained.task.horizon),
            "data_signature": trained.data_signature(),
            "weights_checksum": checksum(stored),
            "metrics": metrics,
            "command": f"sad-hpc launch {trained.name}.yaml  # with the settings of this file",
            "license": "mit",
            "provenance": portable(provenance()),
        }
        write_json(folder / CARD, card)
        (folder / README).write_text(_readme(card, make_family(trained.task).description))
    except OSError as error:
        raise write_error(folder, error) from error


def _last_metrics(checkpoint: StageFolder) -> dict[str, float]:
    """The last line of a training's metrics; empty if there is none.

    Raises:
        UserError: the file was changed after the training.
    """
    checkpoint.check_records()
    try:
        lines = read_whole(checkpoint.path / METRICS).splitlines()
        return typed(dict[str, int | float], plain_json.parse(lines[-1])) or {}
    except (OSError, ValueError, IndexError):
        return {}


def _readme(card: Mapping[str, Any], description: str) -> str:
    """A model card, whose head is YAML for hubs."""
    metrics = card["metrics"]
    found = "; ".join(
        f"{words} {metrics[name]:.4g}"
        for name, words in {
            "holdout_loss": "held-out loss (nats)",
            "excess_loss": "beyond the ideal learner",
            "holdout_accuracy": "label accuracy",
        }.items()
        if name in metrics
    )
    return f"""---
library_name: sad_hpc
license: {card["license"]}
tags: [reinforcement-learning, in-context-reinforcement-learning, state-action-distillation]
---

# {markdown(card["experiment"])}: {markdown(card["row"])}, seed {card["seed"]}

A transformer that was pretrained by {card["method"]} on random play in many tasks.
Their family: {markdown(description)}
It answers a context (transitions of a task that it has never seen) and a state with an action;
its weights do not change. On held-out training tasks: {found or "not measured"}.

```python
import sad_hpc

policy = sad_hpc.load_policy(".")                      # this folder
action = policy.act(context, state)                    # context: a dictionary of {", ".join(PARTS)}
```

`config.json` has the settings of task, data, model and training, and the commit.
"""
