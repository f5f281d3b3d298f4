"""Training examples of a method as compact tensors, and the order of their use."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.dataset.layout import layout
from sad_hpc.dataset.reader import Arrays, load_complete, read_columns
from sad_hpc.experiment.methods import METHODS, Method
from sad_hpc.experiment.sections import DITConfig
from sad_hpc.ideal.answers import IdealAnswers, ideal_answers
from sad_hpc.model.context import Context
from sad_hpc.pretrain.questions import Batch, answerable, holdout_questions, training_questions
from sad_hpc.pretrain.repetition import repetitions
from sad_hpc.storage.run import Run
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.logged import held_out_rows
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.tasks.validation import are_among

CONTEXT_PARTS = ("states", "actions", "rewards", "next_states", "images", "ends")


def context_parts(family: TaskFamily) -> tuple[str, ...]:
    """Return the names of a context's datasets that are inputs of the model."""
    absent = {"next_states": family.frame_shape is not None}
    absent |= {"images": family.image_size is None, "ends": not family.has_ends}
    return tuple(part for part in CONTEXT_PARTS if not absent.get(part))


class Examples:
    """All examples of a method on the device, in the dataset's dtypes.

    Rows are in the order training, held out, validation.  Training uses only the first ones.

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
        self._questions = training_questions(method, columns, stateless, past)
        self._holdout_questions = holdout_questions(method, columns, stateless, past)
        self._repeated, self.ideal, self._bins = repeated, ideal, bins
        self._validation = np.empty((0, 0)) if validation is None else validation
        self.n_holdout = holdout
        self.n_train = len(self._context.actions) - holdout - len(self._validation)

    @classmethod
    def load(cls, run: Run, method: str, device: torch.device) -> "Examples":
        """Read the training split through its manifest.

        Raises:
            DatasetError: the dataset is missing, incomplete, damaged, or of another config.
            UserError: too few logged tasks are left for training (see `held_out_rows`).
        """
        experiment = run.experiment
        folder = run.data().path / "train"
        family = make_family(experiment.task)
        made_by = experiment.data_signature(), experiment.data_config()
        manifest = load_complete(folder, *made_by, family.fingerprint)
        source = METHODS[method]
        groups = family.context_groups
        context = source.context if source.context in groups else groups[0]
        has_images = family.image_size is not None
        names = {part: f"{context}/{part}" for part in context_parts(family)}
        names["parameters"] = "tasks/parameters"
        if source.labels is not None:
            names["query_states"] = f"{source.labels}/query_states"
            names["labels"] = f"{source.labels}/actions"
            if has_images:
                names["query_images"] = f"{source.labels}/query_images"
        columns_of_files = layout(family, experiment.data)
        found = read_columns(folder, manifest, list(names.values()), columns=columns_of_files)
        arrays: Arrays = {key: found[name] for key, name in names.items()}
        if source.by_return:
            arrays["weights"] = dit_weights(family, experiment.dit, arrays)
        ideal, holdout = None, experiment.pretrain.holdout_tasks
        seen, validation = len(arrays["parameters"]), None
        if experiment.pretrain.validation_tasks:
            assert isinstance(family, TabularFamily)  # has_validation
            tasks = family.validation_tasks(experiment.pretrain.validation_tasks)
            arrays, seen = validation_last(arrays, tasks)
            family, validation = family.without(tasks), arrays["parameters"][seen:]
        if not experiment.data.has_known_tasks:
            holdout = held_out_rows(arrays["parameters"][:, 0], experiment.pretrain)
        if source.labels is not None and experiment.data.has_known_contexts:
            last = {key: array[seen - holdout : seen] for key, array in arrays.items()}
            ideal = ideal_answers(family, experiment.data, source.labels, last)
        del arrays["parameters"]
        columns = {key: torch.from_numpy(array).to(device) for key, array in arrays.items()}
        stateless = isinstance(family, BanditFamily)
        repeated = experiment.pretrain.resample_probability, experiment.pretrain.max_reward_weight
        past, bins = experiment.dit.prefixes == "past", family.n_actions
        return cls(source, columns, holdout, stateless, repeated, ideal, bins, validation, past)

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

    def places(self, seed: int, step: int, rows: Tensor) -> Tensor | None:
        """Return `repetitions` (n, T) for the rows (n,) of a step's whole batch."""
        share, favour = self._repeated
        if share == 0:
            return None
        rewarded = (self._context.rewards[rows] > 0).cpu().numpy()
        drawn = repetitions(seed, step, rewarded, share, favour)
        return None if drawn is None else torch.from_numpy(drawn).to(self.device)

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
        the columns, and the number of the other rows.
    """
    moved = are_among(arrays["parameters"], tasks)
    order = np.argsort(moved, kind="stable")
    return {key: array[order] for key, array in arrays.items()}, int((~moved).sum())


def dit_weights(family: TaskFamily, settings: DITConfig, arrays: Arrays) -> NDArray[np.float32]:
    """Return the weights of DIT's pairs of state and action, (n, T).

    Args:
        family: in a bandit, a pull is an episode of one step, and its return is its own reward.
        settings: lambda, the discount and the floor.
        arrays: rewards (n, T) and, if episodes can end, ends (n, T).
    """
    returns = arrays["rewards"].astype(np.float32)
    if not isinstance(family, BanditFamily):
        whole = (-1, family.config.horizon)  # a context may have several episodes of T steps
        ends = arrays.get("ends")
        cut = None if ends is None else ends.reshape(whole)
        of_steps = return_to_go(returns.reshape(whole), settings.discount, cut)
        returns = of_steps.reshape(returns.shape)
    weights = importance(returns)
    if settings.floor is not None:
        weights = np.maximum(weights, np.float32(settings.floor))
    return np.float32(settings.weight) * weights


def importance(returns: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return DIT's weights without the factor lambda, (n, T), from returns-to-go (n, T).

    If the mean return is negative, the minimum is subtracted, because a negative weight would
    penalize actions of the data.  The paper has no such tasks.
    """
    return returns - returns.min() if returns.sum() < 0 else returns


def return_to_go(
    rewards: NDArray[np.generic], discount: float, ends: NDArray[np.uint8] | None = None
) -> NDArray[np.float32]:
    """Return the discounted return-to-go of each step, (n, T), for rewards (n, T).

    It is the sum over t' >= t of discount^(t' - t) x reward_t', up to the next of `ends` (n, T).
    """
    result = rewards.astype(np.float32)
    for t in range(result.shape[1] - 2, -1, -1):
        later = result[:, t + 1] if ends is None else result[:, t + 1] * (ends[:, t] == 0)
        result[:, t] += np.float32(discount) * later
    return result
