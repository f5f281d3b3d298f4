"""Trained models that are shared, as policies: `sad_hpc.load_policy` of a folder."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from sad_hpc.errors import UserError
from sad_hpc.evaluate.policy import answers, greedy, make_ready, sampled
from sad_hpc.model import bins
from sad_hpc.model.context import Context
from sad_hpc.model.finite import all_finite
from sad_hpc.model.transformer import Transformer
from sad_hpc.policy_card import CARD, WEIGHTS, read_card
from sad_hpc.storage.files import checksum, read_whole

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
            UserError: a part of the context is missing, of another shape or not finite.
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
            raise UserError(f"a context is a dictionary of {', '.join(names)}, not {given!r:.40}")
        if given and not set(PARTS) <= set(given) <= set(names):
            raise UserError(f"a context has {', '.join(names)}, not {', '.join(map(str, given))}")
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
            raise UserError(f"{name} has the shape {array.shape}, but should have {shape}{beside}")
        if not np.isfinite(array).all():
            raise UserError(f"{name} has a number that is not finite")
        if name == "actions" and self.model.inputs.components is None:
            known = (array >= 0) & (array < self.model.inputs.n_actions) & (array % 1 == 0)
            if not known.all():
                raise UserError(f"actions are numbers below {self.model.inputs.n_actions}")
        return array


def _numbers(name: str, value: Any) -> NDArray[np.float32]:
    """A part of a context as an array.

    Raises:
        UserError: it holds something else than numbers, or lists of different lengths.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of what is not finite in float32
            array = np.asarray(value)
            if array.dtype.kind not in "biuf" and array.size:
                raise TypeError
            return array.astype(np.float32)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise UserError(f"{name} is no array of numbers: {value!r:.40}") from None


def load_policy(folder: str | Path) -> Policy:
    """The policy of a folder that `sad-hpc export --weights` has written.

    Raises:
        UserError: the folder holds no such thing, or is damaged.
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
        raise UserError(f"{folder} cannot be loaded ({reason}): export it again") from error
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
