"""Trained models to share: a folder with weights and card, and `sad_hpc.load_policy` of it.

The folder is what model hubs show as it is: `model.safetensors` with the weights, `config.json`
with all that is needed to build the model and where it comes from, and a `README.md`.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from sad_hpc.aggregate.markdown import markdown
from sad_hpc.aggregate.origin import portable
from sad_hpc.errors import SadError
from sad_hpc.evaluate.policy import answers, greedy, load_model, make_ready, sampled
from sad_hpc.experiment.methods import METHODS
from sad_hpc.model import bins
from sad_hpc.model.context import Context
from sad_hpc.model.finite import all_finite
from sad_hpc.model.transformer import Transformer
from sad_hpc.policy_card import read_card
from sad_hpc.storage import plain_json
from sad_hpc.storage.files import checksum, read_whole, typed, write_error, write_json
from sad_hpc.storage.provenance import provenance
from sad_hpc.storage.run import METRICS, Run, StageFolder
from sad_hpc.tasks.base import make_family

WEIGHTS, CARD, README = "model.safetensors", "config.json", "README.md"

PARTS = ("states", "actions", "rewards", "next_states")
"""Of a context, each (t, ...); `ends` may be added where episodes can end by themselves."""


@dataclass(frozen=True)
class Policy:
    """A trained model that answers a context and a state."""

    model: Transformer
    longest: int
    """Transitions of the longest context; of a longer one the last ones are shown."""
    card: Mapping[str, Any]
    """What `config.json` says."""

    def logits(self, context: Mapping[str, ArrayLike] | None, state: ArrayLike) -> NDArray[Any]:
        """(A,), or (a, bins) where actions are vectors: the model's answer.

        Args:
            context: t >= 0 transitions in the order in which they were made: states (t, d), actions
                (t,) or (t, a), rewards (t,), next_states (t, d); where episodes can end by
                themselves also ends (t,), 1 where a terminal state followed, zeros if left out.
                Of more transitions than `longest` the last ones are shown.  None: no transitions.
            state: (d,) the state in which to act.

        Raises:
            SadError: a part of the context is missing, of another shape or not finite.
        """
        shown = self._context({} if context is None else context)
        asked = self._part("state", [state], (1, self._width))
        prefixes = np.full((1, 1), shown.actions.shape[1])
        logits = answers(self.model, shown, asked, prefixes, batch_size=1)[0]
        return logits if self.model.inputs.components is not None else logits[0]

    def probabilities(
        self, context: Mapping[str, ArrayLike] | None, state: ArrayLike
    ) -> NDArray[np.float64]:
        """(A,), or (a, bins): the chances of actions; see `logits`."""
        logits = torch.from_numpy(self.logits(context, state)).double()
        return logits.softmax(dim=-1).numpy()

    def act(
        self,
        context: Mapping[str, ArrayLike] | None,
        state: ArrayLike,
        generator: np.random.Generator | None = None,
    ) -> Any:
        """An action: the likeliest (as offline), or one that `generator` draws (as online)."""
        logits = self.logits(context, state)
        if self.model.inputs.components is not None:
            return bins.likeliest(logits) if generator is None else bins.drawn(logits, generator)
        if generator is None:
            return int(greedy(logits))
        return int(sampled(logits[None], generator.random(1))[0])

    @property
    def _width(self) -> int:
        return len(self.model.inputs.state_center)

    def _context(self, given: Mapping[str, ArrayLike]) -> Context:
        """A batch of one context."""
        inputs = self.model.inputs
        names = (*PARTS, "ends") if inputs.has_ends else PARTS
        if not isinstance(given, Mapping):
            raise SadError(f"a context is a dictionary of {', '.join(names)}, not {given!r:.40}")
        if given and not set(PARTS) <= set(given) <= set(names):
            raise SadError(f"a context has {', '.join(names)}, not {', '.join(map(str, given))}")
        length = _numbers("rewards", given["rewards"]).size if given else 0
        action = () if inputs.components is None else (inputs.components,)
        shapes = {"states": (self._width,), "next_states": (self._width,), "actions": action}
        parts = {}
        for name in names:
            shape = (length, *shapes.get(name, ()))
            part = self._part(name, given.get(name, np.zeros(shape)), shape)
            parts[name] = torch.from_numpy(part[max(0, length - self.longest) :][None])
        return Context(**parts)

    def _part(self, name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
        array = _numbers(name, value)
        if array.shape != shape:
            beside = "" if name == "state" else f" beside {shape[0]} rewards"
            raise SadError(f"{name} has the shape {array.shape}, but should have {shape}{beside}")
        if not np.isfinite(array).all():
            raise SadError(f"{name} has a number that is not finite")
        if name == "actions" and self.model.inputs.components is None:
            known = (array >= 0) & (array < self.model.inputs.n_actions) & (array % 1 == 0)
            if not known.all():
                raise SadError(f"actions are numbers below {self.model.inputs.n_actions}")
        return array


def _numbers(name: str, value: Any) -> NDArray[np.float32]:
    """A part of a context as an array.

    Raises:
        SadError: it holds something else than numbers, or lists of different lengths.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of what is not finite in float32
            array = np.asarray(value)
            if array.dtype.kind not in "biuf" and array.size:
                raise TypeError
            return array.astype(np.float32)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise SadError(f"{name} is no array of numbers: {value!r:.40}") from None


def export_policy(run: Run, row: str, seed: int, folder: Path) -> None:
    """Writes the trained model of a (row, seed) into a new or empty folder.

    Raises:
        SadError: there is something in the folder, it cannot be written, or the model sees images.
        CheckpointError: the model is not trained.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SadError(f"{folder} is there already: choose another folder, or remove it")
    own, method = run.of_row(row)
    model, trained = load_model(own, method, seed), own.experiment.source
    if model.images is not None:
        raise SadError(f"models of {trained.task.family} see images: there is no export of these")
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


def load_policy(folder: str | Path) -> Policy:
    """The policy of a folder that `sad-hpc export --weights` has written.

    Raises:
        SadError: the folder holds no such thing, or is damaged.
    """
    folder = Path(folder)
    card, content = read_card(folder / CARD)
    inputs = card.inputs.inputs
    try:
        stored = read_whole(folder / WEIGHTS)
        if checksum(stored) != card.weights_checksum:
            raise ValueError(f"the checksum of {WEIGHTS} has changed")
        weights = load(stored)
        with torch.device("meta"):  # shapes, without memory
            _check_weights(weights, Transformer(card.model, inputs))
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        reason = " ".join(f"{error.args[-1] if error.args else error!r}".split())
        raise SadError(f"{folder} cannot be loaded ({reason}): export it again") from error
    model = Transformer(card.model, inputs)
    model.load_state_dict(weights, strict=False)  # what is no parameter is not stored
    make_ready(model)
    return Policy(model, card.longest_context, content)


def _check_weights(weights: Mapping[str, Tensor], model: Transformer) -> None:
    """Raises ValueError if weights are not those of a model, or are not finite."""
    expected = {name: parameter.shape for name, parameter in model.named_parameters()}
    if weights.keys() != expected.keys():
        raise ValueError("the weights are of another model")
    for name, weight in weights.items():
        if weight.shape != expected[name] or weight.dtype != torch.float32:
            raise ValueError(
                f"{name} is {tuple(weight.shape)} {weight.dtype}, but the model of {CARD} has "
                f"{tuple(expected[name])} {torch.float32}"
            )
    if not all_finite(weights.values()):
        raise ValueError("the weights are not finite")


def _last_metrics(checkpoint: StageFolder) -> dict[str, float]:
    """The last line of a training's metrics; empty if there is none.

    Raises:
        SadError: the file was changed after the training.
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
