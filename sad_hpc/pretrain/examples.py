"""Training examples of a method: compact tensors, read once, and the order of their use."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.dataset.layout import layout
from sad_hpc.dataset.reader import Arrays, load_complete, read_columns
from sad_hpc.experiment.methods import METHODS, Method
from sad_hpc.ideal.answers import IdealAnswers, ideal_answers
from sad_hpc.model.context import Context
from sad_hpc.pretrain.questions import Batch, answerable, holdout_questions, training_questions
from sad_hpc.pretrain.repetition import repetitions
from sad_hpc.storage.run import Run
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily, make_family

CONTEXT_PARTS = ("states", "actions", "rewards", "next_states")


def context_parts(family: TaskFamily) -> tuple[str, ...]:
    """Datasets of a context that a model of this family is shown."""
    images = ("images",) if family.image_size is not None else ()
    return (*CONTEXT_PARTS, *images, *(("ends",) if family.has_ends else ()))


class Examples:
    """All of a method's examples on the device, in the dataset's dtypes (one-hot comes later).

    The last `holdout` training tasks are kept out of training.

    Args:
        method: says how examples are made of the columns.
        columns: context parts (n, T, ...), ends (n, T) where there are any; query_states (n, K, d)
            and labels (n, K) where the method has labels of its own; weights (n, T) where it
            weighs them; images (n, T, s, s, 3) and query_images (n, K, s, s, 3) where states are
            seen as images.
        holdout: tasks kept out of training.
        stateless: whether there is one state only, as in bandits.
        repeated: probability that a context is trained on with repetitions, and how much these may
            favour rewarded transitions; see `repetitions`.
        ideal: answers to the held-out questions, where they are known.
        bins: of each component of an action, where actions are vectors.
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
    ) -> None:
        parts = [part for part in (*CONTEXT_PARTS, "images", "ends") if part in columns]
        self._context = Context(**{part: columns[part] for part in parts})
        self._questions = training_questions(method, columns, stateless)
        self._holdout_questions = holdout_questions(method, columns, stateless)
        self._repeated, self.ideal, self._bins = repeated, ideal, bins
        self.n_holdout = holdout
        self.n_train = len(self._context.actions) - holdout

    @classmethod
    def load(cls, run: Run, method: str, device: torch.device) -> "Examples":
        """Read the training split through its manifest.

        Raises:
            DatasetError: the dataset is missing, incomplete, damaged, or of another config.
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
            dit = experiment.dit
            returns = return_to_go(arrays["rewards"], dit.discount, arrays.get("ends"))
            arrays["weights"] = dit.weight * importance(returns)
        ideal, holdout = None, experiment.pretrain.holdout_tasks
        # By what law the tasks come that others have logged is not known.
        if source.labels is not None and experiment.data.imported_contexts is None:
            last = {key: array[-holdout:] for key, array in arrays.items()}
            ideal = ideal_answers(family, experiment.data, source.labels, last)
        del arrays["parameters"]
        columns = {key: torch.from_numpy(array).to(device) for key, array in arrays.items()}
        stateless = isinstance(family, BanditFamily)
        repeated = experiment.pretrain.resample_probability, experiment.pretrain.max_reward_weight
        return cls(source, columns, holdout, stateless, repeated, ideal, family.n_actions)

    @property
    def device(self) -> torch.device:
        """Where the examples are."""
        return self._context.actions.device

    @property
    def tokens(self) -> int:
        """Transitions and queries of an example that pass through the model.

        Of vectors each component is asked for by a query of its own.
        """
        actions, transitions = self._context.actions, self._questions.horizon
        components = actions.shape[2] if actions.ndim == 3 else 1
        return transitions + components * (self._questions.tokens - transitions)

    def batch(self, rows: Tensor, drawn: Tensor, places: Tensor | None = None) -> Batch:
        """The examples with these row numbers (B,), and what was drawn for each of them (B, D).

        `places` (B, T) says which of its transitions a context holds at each place; None: all, in
        their order.
        """
        context = self._context_of(rows)
        if places is not None:
            here = torch.arange(len(rows), device=self.device).unsqueeze(1), places
            context = context.map(lambda part: part[here])
        return answerable(self._questions.batch(context, rows, drawn), self._bins)

    def held_out(self, rows: Tensor) -> Batch:
        """Held-out examples (B,), which are asked the same in every epoch.

        Instead of random numbers each example has n successive ones: every number comes equally
        often.
        """
        count, choices = self._holdout_questions.draws
        drawn = (rows.unsqueeze(1) + torch.arange(count, device=self.device)) % choices
        asked = self._holdout_questions.batch(self._context_of(rows), rows, drawn)
        return answerable(asked, self._bins)

    def _context_of(self, rows: Tensor) -> Context:
        return self._context.map(lambda part: part[rows])

    def order(self, seed: int, epoch: int) -> Tensor:
        """(n_train,) a permutation that depends on seed and epoch, not on the number of ranks."""
        permutation = np.random.default_rng([seed, epoch]).permutation(self.n_train)
        return torch.from_numpy(permutation).to(self.device)

    def draws(self, seed: int, step: int, size: int) -> Tensor:
        """(size, D) what is drawn for a step's whole batch, whatever the number of ranks."""
        count, choices = self._questions.draws
        drawn = np.random.default_rng([seed, step]).integers(choices, size=(size, count))
        return torch.from_numpy(drawn).to(self.device)

    def places(self, seed: int, step: int, rows: Tensor) -> Tensor | None:
        """Return the repetitions of a step's whole batch, whose row numbers (n,) are these, (n, T);
        see `repetitions`.
        """
        share, favour = self._repeated
        if share == 0:
            return None
        rewarded = (self._context.rewards[rows] > 0).cpu().numpy()
        drawn = repetitions(seed, step, rewarded, share, favour)
        return None if drawn is None else torch.from_numpy(drawn).to(self.device)

    def holdout(self, rank: int, world_size: int) -> Tensor:
        """Rows of this rank's share of the held-out tasks."""
        rows = torch.arange(self.n_train, self.n_train + self.n_holdout, device=self.device)
        return rows[rank::world_size]


def importance(returns: NDArray[np.float32]) -> NDArray[np.float32]:
    """DIT's weights but for lambda, of returns-to-go (n, T).

    Where rewards are costs, which the paper's never are, they are counted from the worst return: a
    negative weight would train a model to leave out what the data show.
    """
    return returns - returns.min() if returns.mean() < 0 else returns


def return_to_go(
    rewards: NDArray[np.generic], discount: float, ends: NDArray[np.uint8] | None = None
) -> NDArray[np.float32]:
    """Return sum over t' >= t of discount^(t' - t) x reward_t', for rewards (n, T), (n, T).

    The sum goes as far as the episode does: to the next of the ends (n, T), if there are any.
    """
    result = rewards.astype(np.float32)
    for t in range(result.shape[1] - 2, -1, -1):
        later = result[:, t + 1] if ends is None else result[:, t + 1] * (ends[:, t] == 0)
        result[:, t] += np.float32(discount) * later
    return result
