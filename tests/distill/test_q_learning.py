"""Q-learning histories: the compiled learner against a plain implementation."""

from pathlib import Path

import numpy as np
import pytest

from sad_hpc.cli import main
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import verify
from sad_hpc.distill.q_learning import LAST_EXPLORATION, LEARNING_RATE, sample_histories
from sad_hpc.errors import ConfigError
from sad_hpc.evaluate.policy import load_model
from sad_hpc.evaluate.result_file import RESULT, read_result
from sad_hpc.experiment.load import load_experiment
from sad_hpc.kernels.random import (
    digits_product,
    digits_word,
    next_double,
    rejection_threshold,
    stream,
)
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from tests.conftest import ROOT, TINY

POLICY = np.arange(5, dtype=np.uint8)
HORIZON, STEPS, DISCOUNT, KEPT = 9, 2000, 0.9, 3


def histories(steps: int = STEPS, tasks: int = 4):
    family = make_family(load_experiment(TINY).task)
    variants = family.distinct_tasks("train")
    mdps, mdp_of_task = family.mdps(variants), np.arange(tasks) % len(variants)
    made = sample_histories(
        family, mdps, mdp_of_task, POLICY, steps, KEPT, DISCOUNT, stream(0, 0, 0, "episodes")
    )
    return family, variants[mdp_of_task], mdps, made


def test_it_is_q_learning_step_for_step():
    """Also for a history of one episode, which is kept three times."""
    for steps in (STEPS, HORIZON):
        family, _, mdps, made = histories(steps, tasks=2)
        state_of, words = family.state_numbers, stream(0, 0, 0, "episodes")
        product = np.uint64(digits_product(5, 1))  # unboxed they are signed
        threshold = np.uint64(rejection_threshold(product))
        for task in range(2):
            q, kept = np.zeros((family.n_states, 5)), []
            ages = sorted(int(next_double(words) * (steps // HORIZON)) for _ in range(KEPT))
            state = family.start_state
            for step in range(steps):
                if step % HORIZON == 0:
                    state = family.start_state
                action = int(q[state].argmax())
                if next_double(words) < 1 - (1 - LAST_EXPLORATION) * step / steps:
                    word = digits_word(words, product, threshold)
                    action = int(POLICY[int(word) * 5 >> 64])
                after = int(mdps.next_states[task, state, action])
                reward = float(mdps.rewards[task, state, action])
                target = reward + DISCOUNT * q[after].max()
                q[state, action] += LEARNING_RATE * (target - q[state, action])
                kept.append((state, action, reward, after))
                state = after
            shown = [kept[age * HORIZON + t] for age in ages for t in range(HORIZON)]
            ours = zip(
                state_of(made.states[task]), made.actions[task], made.rewards[task],
                state_of(made.next_states[task]), strict=True,
            )  # fmt: skip
            assert [tuple(map(float, one)) for one in ours] == [tuple(map(float, k)) for k in shown]


def test_a_context_shows_how_the_policy_becomes_optimal():
    family, parameters, _, made = histories(20_000, tasks=600)
    optimal = family.optimal_actions(parameters)
    rows = np.arange(len(parameters))[:, None]
    right = optimal[rows, family.state_numbers(made.states), made.actions]
    by_episode = right.reshape(600, KEPT, HORIZON).mean(axis=2)
    earliest, latest = np.quantile(by_episode, [0.05, 0.95])
    assert latest > 0.95 > 0.6 > earliest
    assert (np.diff(by_episode.mean(axis=0)) > 0.05).all()
    # The whole history of T steps is random play.
    _, _, _, first = histories(HORIZON, tasks=600)
    assert made.rewards.mean() > 2 * first.rewards.mean()


def test_a_context_has_whole_episodes():
    family, _, _, made = histories(2000, tasks=400)
    states, following = map(family.state_numbers, (made.states, made.next_states))
    assert states.shape == (400, KEPT * HORIZON)
    assert (states[:, ::HORIZON] == family.start_state).all()
    jumps = states[:, 1:] != following[:, :-1]
    assert set(np.nonzero(jumps)[1] + 1) == {HORIZON, 2 * HORIZON}


def test_a_model_learns_and_acts_with_contexts_of_several_episodes(tmp_path: Path):
    """Its context holds three of them, of the learner as of its own play."""
    settings = ["data.q_learning_steps=200", "data.history_episodes=3", "rows=[AD]", "seeds=[0]"]
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    for command in ("collect", "pretrain", "evaluate"):
        assert main([command, str(TINY), *settings, "pretrain.epochs=1", *folders]) == 0
    experiment = load_experiment(TINY, [*settings, "pretrain.epochs=1"])
    run = Run(experiment, tmp_path / "runs")
    assert experiment.context_length("AD") == 3 * experiment.task.horizon
    assert experiment.context_length("SAD") == experiment.task.horizon
    assert load_model(run, "AD", 0).inputs.horizon == 3 * experiment.task.horizon
    online = read_result(run.evaluation("AD", 0).path / RESULT).modes["online"]
    assert online.values.shape[0] == experiment.evaluate.tasks


def test_a_dataset_of_histories_is_valid_and_counts_every_step(tmp_path):
    run = Run(load_experiment(TINY, ["data.q_learning_steps=300"]), tmp_path)
    collect(run)
    folder = run.data().path / "train"
    manifest = Manifest.load(folder)
    assert manifest.steps["episodes"] == 300 * manifest.n_tasks
    assert verify(folder).faults == []
    plain = load_experiment(TINY)
    assert plain.data_signature() != run.experiment.data_signature()
    none = load_experiment(TINY, ["data.q_learning_steps=0"])
    assert none.data_signature() == plain.data_signature()


def test_only_a_reset_may_interrupt_a_history():
    family, parameters, _, made = histories(tasks=200)
    assert family.dynamics_faults(parameters, "episodes", made.parts, cut=True) == []
    shuffled = {name: part[:, ::-1] for name, part in made.parts.items()}
    assert family.dynamics_faults(parameters, "episodes", shuffled, cut=True) == [
        "episodes are not in time order"
    ]


@pytest.mark.parametrize(
    ("config", "steps", "said"),
    [
        ("tiny_gaussian", 100, "tables of deterministic steps"),
        ("tiny", 5, "task.horizon"),
        ("tiny", -1, "q_learning_steps"),
    ],
)
def test_impossible_histories_are_refused(config: str, steps: int, said: str):
    with pytest.raises(ConfigError, match=said):
        load_experiment(ROOT / f"tests/configs/{config}.yaml", [f"data.q_learning_steps={steps}"])
