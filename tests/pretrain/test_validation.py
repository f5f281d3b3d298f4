"""Validation tasks in a training: unseen goals, loss and return on them, and the best weights."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.evaluate.episode import play_episode, returns_of
from sad_hpc.evaluate.policy import load_model, state_logits
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.ideal.label_law import label_law
from sad_hpc.launch.graph import pretrain_with_score
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.weights import WEIGHTS
from sad_hpc.parallel import preemption
from sad_hpc.parallel.preemption import Preempted
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import action_loss
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.pretrain.validation import TASKS, TIMES, Validation
from sad_hpc.storage.run import Run
from sad_hpc.tasks.validation import are_among
from tests.conftest import TINY, clockless_metrics, forget_rendezvous, with_data_of
from tests.patience import HUNG

CPU = torch.device("cpu")
SHARE = "pretrain.validation_tasks=0.34"
PARTS = ("states", "actions", "rewards", "next_states")
BIN = Path(sys.executable).parent


@pytest.fixture
def make_run(tiny_run: Run, tmp_path: Path) -> Callable[..., Run]:
    """A run with the tiny dataset and two of six goals for validation, in its own folder."""

    def make(name: str = "run", *overrides: str) -> Run:
        experiment = load_experiment(TINY, [SHARE, *overrides])
        return with_data_of(tiny_run, Run(experiment, tmp_path / name))

    return make


def goals_of(run: Run) -> set[tuple[int, ...]]:
    """The validation goals."""
    share = run.experiment.pretrain.validation_tasks
    return set(map(tuple, run.experiment.family.validation_tasks(share).tolist()))


def stored(run: Run, group: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The training split's columns with contexts of a group, and which rows are for validation."""
    folder, goals = run.data().path / "train", goals_of(run)
    labels = [f"labels/sad/{part}" for part in ("query_states", "actions")]
    names = [*(f"{group}/{part}" for part in PARTS), *labels, "tasks/parameters"]
    columns = read_columns(folder, Manifest.load(folder), names)
    mine = np.array([tuple(goal) in goals for goal in columns["tasks/parameters"].tolist()])
    return columns, mine


@pytest.mark.parametrize("method", ["SAD", "DIT"])
def test_no_training_batch_or_held_out_task_has_a_validation_goal(make_run, method: str):
    run = make_run()
    examples, goals = Examples.load(TrainingColumns(run, method), CPU), goals_of(run)
    assert len(goals) == 2
    order = examples.order(0, 0)
    batch = examples.batch(order, examples.draws(0, 0, len(order)))
    reached = batch.context.next_states[batch.context.rewards > 0]
    found = set(map(tuple, reached.tolist()))
    assert len(found) == 4 and not found & goals
    for rows, allowed in (
        (examples.holdout(0, 1), found),
        (examples.validation(0, 1), goals),
    ):
        context = examples.held_out(rows).context
        shown = context.next_states[context.rewards > 0]
        assert set(map(tuple, shown.tolist())) <= allowed
    assert len(order) == 400 - 64


def test_training_rows_keep_their_order(make_run):
    run = make_run()
    columns, mine = stored(run, "transitions")
    examples = Examples.load(TrainingColumns(run, "SAD"), CPU)
    rows = torch.arange(examples.n_train)
    batch = examples.batch(rows, examples.draws(0, 0, len(rows)))
    expected = columns["transitions/actions"][~mine][:-64]
    np.testing.assert_array_equal(batch.context.actions.numpy(), expected)
    held_out = examples.held_out(examples.holdout(0, 1)).labels[:, :1]
    np.testing.assert_array_equal(held_out, columns["labels/sad/actions"][~mine][-64:])
    context, parameters = examples.validation_contexts(50)
    np.testing.assert_array_equal(context.actions, columns["transitions/actions"][mine][:50])
    np.testing.assert_array_equal(parameters, columns["tasks/parameters"][mine][:50])


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_any_number_of_ranks_shares_the_same_validation_rows(make_run, ranks: int):
    examples = Examples.load(TrainingColumns(make_run(), "SAD"), CPU)
    rows = torch.cat([examples.validation(rank, ranks) for rank in range(ranks)])
    assert sorted(rows.tolist()) == list(range(400, 400 + 64))


def test_the_bayes_optimal_prior_has_no_validation_tasks(make_run):
    """Without transitions its answer is the mean label law of the other goals."""
    run = make_run()
    examples, family = Examples.load(TrainingColumns(run, "SAD"), CPU), run.experiment.family
    law = label_law(family, run.experiment.data, "labels/sad")
    assert examples.ideal is not None and law is not None
    known = ~are_among(family.distinct["train"], family.validation_tasks(0.34))
    asked = examples.held_out(examples.holdout(0, 1)).queries.states[:, 0].numpy()
    expected = law[known][:, family.state_numbers(asked)].sum(axis=0)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(examples.ideal.probabilities[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("method", ["SAD", "AD"])
def test_metrics_equal_an_independent_evaluation_of_the_saved_weights(make_run, method: str):
    run = make_run("run", "rows=[SAD, AD]")
    pretrain_with_score(run, method, 0)
    folder = run.checkpoint(method, 0)
    last = clockless_metrics(folder.path)[-1]
    assert folder.done["validation_return"] == last["validation_return"]
    group = "transitions" if method == "SAD" else "episodes"
    columns, mine = stored(run, group)
    parts = {part: columns[f"{group}/{part}"][mine] for part in PARTS}
    model, family = load_model(run, method, 0), run.experiment.family
    shown = 9 if method == "SAD" else 8
    context = Context.of_parts({name: part[:TASKS, -shown:] for name, part in parts.items()})
    actions = state_logits(model, family, context, 64).argmax(axis=2)
    tasks = np.arange(len(actions))
    episode = play_episode(
        family,
        family.mdps(columns["tasks/parameters"][mine][:TASKS]),
        lambda states, _: actions[tasks, states],
        np.random.default_rng(0),
    )
    assert last["validation_return"] == pytest.approx(returns_of(episode).mean(), abs=1e-6)
    if method != "SAD":
        return
    asked = torch.from_numpy(columns["labels/sad/query_states"][mine][:64])
    labels = torch.from_numpy(columns["labels/sad/actions"][mine][:64].astype(np.int64))
    context = Context.of_parts({name: part[:64] for name, part in parts.items()})
    with torch.no_grad():
        logits = model(context, Queries(asked, torch.arange(10).expand(64, 1, -1)))
    loss = action_loss(logits, labels.expand(-1, 10)).item()
    assert last["validation_loss"] == pytest.approx(loss, rel=1e-5)


def test_without_validation_tasks_nothing_is_measured_and_the_signature_is_unchanged(make_run):
    usual = load_experiment(TINY).pretrain_config("SAD", 0)
    assert not {"validation_tasks", "keep"} & set(usual["pretrain"])
    signatures = {
        make_run(f"{number}", *overrides).experiment.pretrain_signature("SAD", 0)
        for number, overrides in enumerate([(), ("pretrain.keep=best",), (f"{SHARE[:-4]}0.5",)])
    }
    assert len(signatures | {load_experiment(TINY).pretrain_signature("SAD", 0)}) == 4
    off = make_run("off", f"{SHARE[:-4]}0.0")
    pretrain_with_score(off, "SAD", 0)
    assert not any(
        name.startswith("validation")
        for line in clockless_metrics(off.checkpoint("SAD", 0).path)
        for name in line
    )


@pytest.mark.parametrize("epochs", [1, 3, TIMES, TIMES + 1, 30, 100, 997])
def test_validations_are_spread_evenly_and_end_with_the_last_epoch(epochs: int):
    validation = Validation(PretrainConfig(epochs=epochs), None, lambda weights: 0.0)  # type: ignore[arg-type]
    due = [epoch for epoch in range(epochs) if validation.is_due(epoch)]
    assert len(due) == min(epochs, TIMES) and due[-1] == epochs - 1
    gaps = np.diff([-1, *due])
    assert gaps.max() - gaps.min() <= 1


class Scripted:
    """A measure of weights with given values, which remembers the weights."""

    def __init__(self, *values: float, stop_after: int = 0) -> None:
        self._values, self._stop_after = list(values), stop_after
        self.seen: list[dict[str, Tensor]] = []

    def __call__(self, *_: object) -> Callable[[Mapping[str, Tensor]], float]:
        return self._score

    def _score(self, weights: Mapping[str, Tensor]) -> float:
        self.seen.append({name: weight.detach().clone() for name, weight in weights.items()})
        if len(self.seen) == self._stop_after:
            os.kill(os.getpid(), signal.SIGUSR2)
        return self._values[len(self.seen) - 1]


def saved(run: Run) -> dict[str, Tensor]:
    path = run.checkpoint("SAD", 0).path / WEIGHTS
    return torch.load(path, weights_only=True)["state"]


def test_the_first_of_the_best_epochs_becomes_the_model(make_run):
    run = make_run("run", "pretrain.keep=best", "pretrain.epochs=4")
    score = Scripted(1.0, 3.0, 3.0, 2.0)
    pretrain(run, "SAD", 0, score)
    assert all(torch.equal(weight, score.seen[1][name]) for name, weight in saved(run).items())
    folder = run.checkpoint("SAD", 0)
    assert (folder.done["epoch"], folder.done["validation_return"]) == (2, 3.0)
    line = clockless_metrics(folder.path)[1]
    assert all(folder.done[name] == value for name, value in line.items())
    load_model(run, "SAD", 0)  # its checksum is that of the marker
    last = make_run("last", "pretrain.epochs=4")
    pretrain(last, "SAD", 0, Scripted(1.0, 3.0, 3.0, 2.0))
    assert all(torch.equal(weight, score.seen[3][name]) for name, weight in saved(last).items())


def test_without_validation_tasks_the_least_held_out_loss_is_best(tiny_run: Run, tmp_path: Path):
    """The kept weights are those of a training that ends in that epoch."""

    def train(name: str, *overrides: str) -> Run:
        settings = ["model.dropout=0.0", "pretrain.learning_rate=0.02", *overrides]
        run = with_data_of(tiny_run, Run(load_experiment(TINY, settings), tmp_path / name))
        pretrain(run, "SAD", 0)
        return run

    best = train("best", "pretrain.keep=best", "pretrain.epochs=12")
    folder = best.checkpoint("SAD", 0)
    losses = [line["holdout_loss"] for line in clockless_metrics(folder.path)]
    epoch = 1 + losses.index(min(losses))
    assert 1 < epoch < 12, "the training is to memorize its tasks"
    assert (folder.done["epoch"], folder.done["holdout_loss"]) == (epoch, min(losses))
    shorter = saved(train("shorter", f"pretrain.epochs={epoch}"))
    assert all(torch.equal(weight, shorter[name]) for name, weight in saved(best).items())


@pytest.mark.faults
@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_the_best_weights_survive_a_preemption(
    make_run, stop_after: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sad_hpc.pretrain.rank_sync.MOST_STEPS", 1)  # it stops one step later
    values = [1.0, 3.0, 0.5, 2.0]
    overrides = "pretrain.keep=best", "pretrain.epochs=4"
    calm, stopped = make_run("calm", *overrides), make_run("stopped", *overrides)
    pretrain(calm, "SAD", 0, Scripted(*values))
    first = Scripted(*values, stop_after=stop_after)
    with pytest.raises(Preempted), preemption.watched():
        pretrain(stopped, "SAD", 0, first)
    done = len(clockless_metrics(stopped.checkpoint("SAD", 0).path))
    pretrain(stopped, "SAD", 0, Scripted(*values[done:]))
    for name, weight in saved(calm).items():
        assert torch.equal(weight, saved(stopped)[name]), name
    metrics = [clockless_metrics(run.checkpoint("SAD", 0).path) for run in (calm, stopped)]
    assert metrics[0] == metrics[1]
    assert stopped.checkpoint("SAD", 0).done["epoch"] == 2


@pytest.mark.slow
def test_two_ranks_validate_like_one_and_take_over_its_best_weights(
    make_run, monkeypatch: pytest.MonkeyPatch
):
    """The second start has another number of ranks."""
    monkeypatch.setattr("sad_hpc.pretrain.rank_sync.MOST_STEPS", 1)
    overrides = [SHARE, "pretrain.keep=best", "pretrain.epochs=4", "model.dropout=0.0"]
    alone, other = make_run("alone", *overrides[1:]), make_run("other", *overrides[1:])
    pretrain_with_score(alone, "SAD", 0)
    score = Scripted(9.0, 8.0, stop_after=2)
    with pytest.raises(Preempted), preemption.watched():
        pretrain(other, "SAD", 0, score)
    forget_rendezvous()
    command = [BIN / "mpiexec", "-n", "2", BIN / "sad-hpc", "pretrain", TINY, *overrides]
    done = subprocess.run(
        [*map(str, command), "--runs", str(other.runs), "--row", "SAD", "--seed", "0"],
        capture_output=True, text=True, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = other.checkpoint("SAD", 0)
    assert folder.done["ranks"] == 2 and folder.done["validation_return"] == 9.0
    assert all(torch.equal(weight, score.seen[0][name]) for name, weight in saved(other).items())
    one, two = (clockless_metrics(run.checkpoint("SAD", 0).path) for run in (alone, other))
    for mine, theirs in zip(one, two, strict=True):
        assert mine["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=1e-3)


def test_trackers_and_the_log_have_both_metrics(make_run, capsys: pytest.CaptureFixture[str]):
    run = make_run("run", "pretrain.epochs=1")
    pretrain_with_score(run, "SAD", 0)
    assert "validation loss" in (out := capsys.readouterr().out) and "validation return" in out
    folder = run.checkpoint("SAD", 0).path
    (events,) = (folder / "tensorboard").iterdir()
    assert (
        b"validation_loss" in (content := events.read_bytes()) and b"validation_return" in content
    )
    (line,) = (folder / "metrics.jsonl").read_text().splitlines()
    assert {"validation_loss", "validation_return"} <= set(json.loads(line))
