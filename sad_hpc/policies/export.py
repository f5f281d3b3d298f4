"""Export of a trained model to a folder for sharing.

The folder has the layout of model hubs: `model.safetensors` with the weights, `config.json` with
the model's settings and provenance, and a `README.md`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save

from sad_hpc.aggregate.formats import markdown
from sad_hpc.errors import UserError
from sad_hpc.evaluate.policy import load_model
from sad_hpc.experiment.methods import METHODS
from sad_hpc.policies.card import CARD, WEIGHTS
from sad_hpc.policies.policy import parts_of
from sad_hpc.storage.files import checksum, write_error
from sad_hpc.storage.json_files import read_json_lines, typed, write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import METRICS, StageFolder
from sad_hpc.tasks.base import make_family

README = "README.md"


def export_policy(run: Run, row: str, seed: int, folder: Path) -> None:
    """Write the trained model of a (row, seed) to a new or empty folder.

    Raises:
        UserError: the folder is not empty or cannot be written, or the model sees rendered images.
        CheckpointError: the model is not trained.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} already exists: choose another folder, or remove it")
    own, method = run.of_element(row, seed)
    model, trained = load_model(own, method, seed), own.experiment.source
    if model.images is not None and not model.inputs.states_are_images:
        raise UserError(f"{trained.task.family}'s models see rendered images: export excludes them")
    metrics = _kept_metrics(own.checkpoint(method, seed))
    family = make_family(trained.task)
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
            "longest_context": METHODS[method].longest_context(trained.context_length(method)),
            "data_signature": trained.data_signature(),
            "weights_checksum": checksum(stored),
            "metrics": metrics,
            "command": f"sad-hpc launch {trained.name}.yaml  # with the settings of this file",
            "license": "mit",
            "provenance": portable(provenance()),
        }
        write_json(folder / CARD, card)
        (folder / README).write_text(_readme(card, family.description, parts_of(model.inputs)))
    except OSError as error:
        raise write_error(folder, error) from error


def _kept_metrics(checkpoint: StageFolder) -> dict[str, float]:
    """Return the metrics of the epoch whose weights a training kept; empty if there are none.

    Raises:
        UserError: the file was changed after the training.
    """
    checkpoint.check_records()
    try:
        lines = read_json_lines(checkpoint.path / METRICS)
    except OSError:
        return {}
    epochs = [typed(dict[str, int | float], line) or {} for line in lines]
    kept = (checkpoint.done or {}).get("step")
    return next((each for each in reversed(epochs) if each.get("step") == kept), {})


def _readme(card: Mapping[str, Any], description: str, parts: tuple[str, ...]) -> str:
    """Return a model card, whose YAML header is read by model hubs."""
    metrics = card["metrics"]
    source = "logged episodes" if card["data"]["imported_contexts"] else "random play"
    found = "; ".join(
        f"{words} {metrics[name]:.4g}"
        for name, words in {
            "holdout_loss": "held-out loss (nats)",
            "excess_loss": "above the Bayes-optimal learner",
            "holdout_accuracy": "label accuracy",
            "validation_return": "return on validation tasks",
        }.items()
        if name in metrics
    )
    return f"""---
library_name: sad_hpc
license: {card["license"]}
tags: [reinforcement-learning, in-context-reinforcement-learning, state-action-distillation]
---

# {markdown(card["experiment"])}: {markdown(card["row"])}, seed {card["seed"]}

A model that was pretrained by {card["method"]} on {source} in many tasks.
Task family: {markdown(description)}
For a context (transitions of a new task) and a state it returns an action, without a change of its
weights. On held-out training tasks: {found or "not measured"}.

```python
import sad_hpc

policy = sad_hpc.load_policy(".")                      # this folder
action = policy.act(context, state)                    # context: a dictionary of {", ".join(parts)}
```

`config.json` has the commit and the settings of task, data, model and training.
"""
