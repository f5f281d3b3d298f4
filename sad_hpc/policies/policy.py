"""The policy of a shared trained model, and its reading from a folder."""

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

from sad_hpc.errors import ConfigError, UserError
from sad_hpc.evaluate.acting import Read, greedy, in_turn, sampled
from sad_hpc.evaluate.policy import answers, make_ready
from sad_hpc.model import bins
from sad_hpc.model.architecture import make_model
from sad_hpc.model.context import Context, Inputs
from sad_hpc.model.finite import all_finite
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.policies.card import CARD, WEIGHTS, read_card
from sad_hpc.storage.files import checksum, read_whole

PARTS = ("states", "actions", "rewards", "next_states")
"""Parts of a context, each (t, ...); families whose episodes can terminate also accept `ends`."""


def parts_of(inputs: Inputs) -> tuple[str, ...]:
    """Return those of PARTS that the contexts of a model have."""
    return PARTS[:-1] if inputs.states_are_images else PARTS


@dataclass(frozen=True)
class Policy:
    """A trained model that returns actions for a context and a state."""

    model: SequenceModel
    longest: int
    """Most transitions of a context; of a longer context the last ones are used."""
    card: Mapping[str, Any]
    """The content of `config.json`."""

    def logits(self, context: Mapping[str, ArrayLike] | None, state: ArrayLike) -> NDArray[Any]:
        """Return the (A,) logits of the actions.

        For vector actions, return the (a, bins) logits of each component, after the likeliest
        components before it.

        Args:
            context: t >= 0 transitions in time order: states (t, d), actions (t,) or (t, a),
                rewards (t,), next_states (t, d).  If episodes can terminate, also ends (t,): 1
                before a terminal state, by default zeros.  Images (t, H, W, C) of 0 to 255 are
                states without next_states.  Only the last `longest` transitions count.  None: no
                transitions.
            state: (d,) or (H, W, C) query state.

        Raises:
            UserError: a part of the context is missing, has another shape or is not finite.
        """
        found: list[NDArray[np.float32]] = []

        def read(logits: NDArray[np.float32]) -> NDArray[Any]:
            found.extend(logits)
            return self._likeliest(logits)

        self._chosen(context, state, read)
        return found[0] if self.model.inputs.components is None else np.stack(found)

    def probabilities(
        self, context: Mapping[str, ArrayLike] | None, state: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the (A,) or (a, bins) probabilities of the actions; see `logits`."""
        logits = torch.from_numpy(self.logits(context, state)).double()
        return logits.softmax(dim=-1).numpy()

    def act(
        self,
        context: Mapping[str, ArrayLike] | None,
        state: ArrayLike,
        generator: np.random.Generator | None = None,
    ) -> Any:
        """Return the likeliest action (offline), or one sampled by `generator` (online).

        The components of a vector are chosen in turn, each after those before it.
        """
        if generator is None:
            return self._chosen(context, state, self._likeliest)
        if self.model.inputs.components is None:
            return self._chosen(context, state, lambda logits: sampled(logits, generator.random(1)))
        return self._chosen(context, state, lambda logits: bins.drawn(logits, generator))

    def _chosen(self, context: Mapping[str, ArrayLike] | None, state: ArrayLike, read: Read) -> Any:
        shown = self._context({} if context is None else context)
        asked = self._part("state", [state], (1, *self._state_shape))
        prefixes = np.full((1, 1), shown.actions.shape[1])

        def answer(first: NDArray[np.float32] | None) -> NDArray[np.float32]:
            return answers(self.model, shown, asked, prefixes, 1, first)[0]

        action = in_turn(answer, read, self.model.inputs.components, count=1)[0]
        return action if self.model.inputs.components is not None else int(action)

    def _likeliest(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        return greedy(logits) if self.model.inputs.components is None else bins.likeliest(logits)

    @property
    def _state_shape(self) -> tuple[int, ...]:
        inputs = self.model.inputs
        return inputs.image_shape or (len(inputs.state_center),)

    def _context(self, given: Mapping[str, ArrayLike]) -> Context:
        """Return a batch of one context."""
        inputs = self.model.inputs
        required = parts_of(inputs)
        names = (*required, "ends") if inputs.has_ends else required
        if not isinstance(given, Mapping):
            raise UserError(f"a context is a dictionary of {', '.join(names)}, not {given!r:.40}")
        if given and not set(required) <= set(given) <= {*PARTS, *names}:
            raise UserError(f"a context has {', '.join(names)}, not {', '.join(map(str, given))}")
        length = _numbers("rewards", given["rewards"]).size if given else 0
        action = () if inputs.components is None else (inputs.components,)
        state = self._state_shape
        shapes = {"states": state, "next_states": state, "actions": action}
        parts = {}
        for name in names:
            shape = (length, *shapes.get(name, ()))
            part = self._part(name, given.get(name, np.zeros(shape)), shape)
            parts[name] = torch.from_numpy(part[max(0, length - self.longest) :][None])
        return Context(**parts)

    def _part(self, name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        array = _numbers(name, value)
        if array.shape != shape:
            beside = "" if name == "state" else f" beside {shape[0]} rewards"
            raise UserError(f"{name} has the shape {array.shape}, but should have {shape}{beside}")
        if not np.isfinite(array).all():
            raise UserError(f"{name} has a number that is not finite")
        if name == "actions" and self.model.inputs.components is None:
            known = (array >= 0) & (array < self.model.inputs.n_actions) & (array % 1 == 0)
            if not known.all():
                raise UserError(
                    f"actions must be integers from 0 to {self.model.inputs.n_actions - 1}"
                )
        if name.startswith("state") and self.model.inputs.states_are_images:
            if not ((array >= 0) & (array <= 255) & (array % 1 == 0)).all():
                raise UserError(f"{name} must have pixels of integers from 0 to 255")
            return array.astype(np.uint8)
        return array


def _numbers(name: str, value: Any) -> NDArray[np.float32]:
    """Return a part of a context as a float32 array.

    Raises:
        UserError: the part is not numeric, or has lists of different lengths.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # about overflow in float32
            array = np.asarray(value)
            if array.dtype.kind not in "biuf" and array.size:
                raise TypeError
            return array.astype(np.float32)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise UserError(f"{name} is not an array of numbers: {value!r:.40}") from None


def read_policy(folder: str | Path) -> Policy:
    """Read the policy from a folder; see `sad_hpc.load_policy`.

    Raises:
        UserError: the folder does not hold a policy, or is damaged.
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
            _check_weights(weights, make_model(card.model, inputs))
    except ConfigError as error:
        raise UserError(
            f"{folder} cannot be loaded ({error}): install the package of its model"
        ) from error
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
        reason = " ".join(f"{error.args[-1] if error.args else error!r}".split())
        raise UserError(f"{folder} cannot be loaded ({reason}): export it again") from error
    model = make_model(card.model, inputs)
    model.load_state_dict(weights, strict=False)  # buffers are not stored
    make_ready(model)
    return Policy(model, card.longest_context, content)


def _check_weights(weights: Mapping[str, Tensor], model: SequenceModel) -> None:
    """Raise ValueError if the weights do not fit the model, or are not finite."""
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
