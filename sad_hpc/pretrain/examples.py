"""Training examples of a method as compact tensors, and the order of their use."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.dataset.reader import Arrays
from sad_hpc.experiment.methods import Method
from sad_hpc.ideal.answers import IdealAnswers, ideal_answers
from sad_hpc.model.context import Context
from sad_hpc.pretrain.questions import Batch, answerable, make_questions
from sad_hpc.pretrain.repetition import Share, repetitions
from sad_hpc.pretrain.training_columns import CONTEXT_PARTS, TrainingColumns
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.tasks.validation import are_among


class Examples:
    """Examples of a method on the device, in the dataset's dtypes.

    Rows are in the order training, held out, validation; there may be none of a kind.  Training
    uses only the first ones.

    Args:
        method: method that defines questions and labels.
        columns: context parts (n, T, ...); optional ends (n, T); query_states (n, K, d) and labels
            (n, K) of methods with labels; weights (n, T) of methods with weights; images
            (n, T, s, s, 3) and query_images (n, K, s, s, 3) of families with rendered images.
        holdout: number of rows kept out of training.
        stateless: whether there is only one state, as in bandits.
        repeated: probability of a resampled context, and the largest weight of its rewarded
            transitions; see `repetitions`.
        ideal: Bayes-optimal answers to the held-out questions, if known.
        bins: bins of each action component if actions are vectors.
        validation: (v, p), parameters of the last v rows, which are of validation tasks; None:
            there are none.
        past: whether DIT's prefixes end before the question; see `DITConfig.prefixes`.
    """

    def __init__(
        self,
        method: Method,
        columns: dict[str, Tensor],
        holdout: int,
        stateless: bool,
        repeated: tuple[float, float] = (0.0, 1.0),
        ideal: IdealAnswers | None = None,
        bins: int = 0,
        validation: NDArray[Any] | None = None,
        past: bool = False,
    ) -> None:
        parts = [part for part in CONTEXT_PARTS if part in columns]
        self._context = Context(**{part: columns[part] for part in parts})
        self._questions, self._holdout_questions = (
            make_questions(method, columns, stateless, past, held_out) for held_out in (False, True)
        )
        self._repeated, self.ideal, self._bins = repeated, ideal, bins
        self._validation = np.empty((0, 0)) if validation is None else validation
        self.n_holdout = holdout
        self.n_train = len(self._context.actions) - holdout - len(self._validation)

    @classmethod
    def load(cls, source: TrainingColumns, device: torch.device) -> "Examples":
        """Read the whole training split.

        Raises:
            DatasetError: the dataset is damaged.
            UserError: too few logged tasks are left for training (see `held_out_rows`).
        """
        arrays, share = source.read(), source.experiment.pretrain.validation_tasks
        if not share:
            return cls.of_columns(source, arrays, device, source.n_holdout)
        family = source.family
        assert isinstance(family, TabularFamily)  # has_validation
        tasks = family.validation_tasks(share)
        arrays, n_validation = validation_last(arrays, tasks)
        return cls.of_columns(
            source, arrays, device, source.n_holdout, family.without(tasks), n_validation
        )

    @classmethod
    def of_columns(
        cls,
        source: TrainingColumns,
        arrays: Arrays,
        device: torch.device,
        holdout: int,
        family: TaskFamily | None = None,
        n_validation: int = 0,
    ) -> "Examples":
        """Return the examples of some rows of the training split.

        Args:
            source: the split.
            arrays: its columns of these rows.
            device: device of the examples.
            holdout: number of held-out rows.
            family: family without the validation tasks; None: the whole family.
            n_validation: number of last rows, which are of validation tasks.
        """
        experiment, method = source.experiment, source.method
        parameters = arrays["parameters"]
        seen, ideal = len(parameters) - n_validation, None
        drawn = method.context == "transitions" and experiment.data.has_known_contexts
        if holdout and method.labels is not None and drawn:
            last = {key: array[seen - holdout : seen] for key, array in arrays.items()}
            ideal = ideal_answers(family or source.family, experiment.data, method.labels, last)
        repeated = experiment.pretrain.resample_probability, experiment.pretrain.max_reward_weight
        columns = {key: torch.from_numpy(array) for key, array in arrays.items()}
        del columns["parameters"]
        return cls(
            method,
            {key: column.to(device) for key, column in columns.items()},
            holdout,
            isinstance(source.family, BanditFamily),
            repeated,
            ideal,
            source.family.n_actions,
            parameters[seen:],
            experiment.dit.prefixes == "past",
        )

    @property
    def device(self) -> torch.device:
        """Device of the examples."""
        return self._context.actions.device

    @property
    def tokens(self) -> int:
        """Number of transitions and queries of an example that pass through the model.

        If actions are vectors, each component has a query.
        """
        actions, transitions = self._context.actions, self._questions.horizon
        components = actions.shape[2] if actions.ndim == 3 else 1
        return transitions + components * (self._questions.tokens - transitions)

    def batch(self, rows: Tensor, drawn: Tensor, places: Tensor | None = None) -> Batch:
        """Return the examples of some rows.

        Args:
            rows: (B,) row numbers.
            drawn: (B, D) random numbers of the examples; see `draws`.
            places: (B, T) indices of the transitions of resampled contexts; None: all in order.
        """
        context = self._context_of(rows)
        asked = self._questions.batch(context, rows, drawn)
        if places is not None:
            here = torch.arange(len(rows), device=self.device).unsqueeze(1), places
            asked = replace(asked, context=context.map(lambda part: part[here]))
        return answerable(asked, self._bins)

    def held_out(self, rows: Tensor) -> Batch:
        """Return held-out examples (B,) with the same questions in every epoch.

        Successive numbers replace random ones, so that each is equally frequent.
        """
        count, choices = self._holdout_questions.draws
        drawn = (rows.unsqueeze(1) + torch.arange(count, device=self.device)) % choices
        asked = self._holdout_questions.batch(self._context_of(rows), rows, drawn)
        return answerable(asked, self._bins)

    def _context_of(self, rows: Tensor) -> Context:
        return self._context.map(lambda part: part[rows])

    def order(self, seed: int, epoch: int) -> Tensor:
        """Return a permutation (n_train,) that is a function of seed and epoch."""
        permutation = np.random.default_rng([seed, epoch]).permutation(self.n_train)
        return torch.from_numpy(permutation).to(self.device)

    def draws(self, seed: int, step: int, size: int) -> Tensor:
        """Draw the random numbers (size, D) of a step's whole batch, for any number of ranks."""
        count, choices = self._questions.draws
        drawn = np.random.default_rng([seed, step]).integers(choices, size=(size, count))
        return torch.from_numpy(drawn).to(self.device)

    def places(self, seed: int, step: int, rows: Tensor, share: Share) -> Tensor | None:
        """Return `repetitions` (B, T) for the rows (B,) of a share of a step's batch."""
        probability, favour = self._repeated
        if probability == 0:
            return None
        rewarded = (self._context.rewards[rows] > 0).cpu().numpy()
        drawn = repetitions(seed, step, rewarded, probability, favour, share)
        return torch.from_numpy(drawn).to(self.device)

    def holdout(self, rank: int, world_size: int) -> Tensor:
        """Return the rows of this rank's share of the held-out tasks."""
        rows = torch.arange(self.n_train, self.n_train + self.n_holdout, device=self.device)
        return rows[rank::world_size]

    def validation(self, rank: int, world_size: int) -> Tensor:
        """Return this rank's share of the first rows of validation tasks, at most `n_holdout`."""
        first, count = self.n_train + self.n_holdout, min(self.n_holdout, len(self._validation))
        return torch.arange(first, first + count, device=self.device)[rank::world_size]

    def validation_contexts(self, count: int) -> tuple[Context, NDArray[Any]]:
        """Return the first contexts of validation tasks, at most `count`, and their parameters.

        They are of the kind on which the method trains, and on the CPU.
        """
        first, parameters = self.n_train + self.n_holdout, self._validation[:count]
        rows = slice(first, first + len(parameters))
        return self._context.map(lambda part: part[rows].cpu()), parameters


def validation_last(arrays: Arrays, tasks: NDArray[Any]) -> tuple[Arrays, int]:
    """Move the rows of validation tasks behind all others, without another change of the order.

    Args:
        arrays: columns of n rows with their `parameters` (n, p).
        tasks: (m, p), the validation tasks.

    Returns:
        the columns, and the number of rows of validation tasks.
    """
    moved = are_among(arrays["parameters"], tasks)
    order = np.argsort(moved, kind="stable")
    return {key: array[order] for key, array in arrays.items()}, int(moved.sum())
