"""Evaluation on one core: against asking the model anew, with the whole context, at every step."""

import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measure import Work, command, compare, report, timed, void
from numpy.typing import NDArray

from sad_hpc.evaluate.acting import sampled
from sad_hpc.evaluate.agent_memory import LastEpisode
from sad_hpc.evaluate.bandit import TransformerPolicy
from sad_hpc.evaluate.bandit_policies import run_bandit
from sad_hpc.evaluate.encoded import EncodedContexts
from sad_hpc.evaluate.episode import as_context, no_transitions, play_episode
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.policy import state_logits
from sad_hpc.evaluate.simulated import deciding, tokens_of
from sad_hpc.experiment.sections import EvaluateConfig, ModelConfig
from sad_hpc.model import bins
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.bandit import GaussianBanditConfig
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.tabular import TabularFamily

CONFIGS = Path(__file__).parent.parent / "configs"
SMALL = ("data.tasks=1200", "pretrain.epochs=1", "pretrain.holdout_tasks=64", "seeds=[0]")
"""Overrides for a short training; the work of an evaluation does not depend on it."""
BIN = Path(sys.executable).parent
TASKS = 200
BATCH = EvaluateConfig().batch_size
ACTING_TASKS, ACTING_STEPS, COMPONENTS = 100, 20, 6
PULLING_TASKS = 4
"""Tasks of the slow reference on bandits; its cost of a pull is the same with 200 tasks."""
WALKING_TASKS, WALKING_EPISODES = 100, 4
"""Tasks and episodes of the slow reference on Darkroom.  Its first episode, with an empty context,
is cheap: as one in four instead of one in 40 it favors the reference."""


def bench_evaluation() -> None:
    """Online, where a context grows or changes; then whole elements of the array job."""
    torch.set_num_threads(1)
    bandit()
    darkroom()
    components()
    elements()


def answering_model(family: TaskFamily) -> Transformer:
    """Untrained, but with answers that differ from state to state."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(), Inputs.of_family(family)).eval()
    torch.nn.init.normal_(model.head.weight, std=1.0)
    return model


def bandit() -> None:
    family = make_family(GaussianBanditConfig())
    model, horizon = answering_model(family), family.config.horizon
    means = family.draw_means(TASKS, np.random.default_rng(1))

    def pull(kind: Callable[..., TransformerPolicy], tasks: int) -> NDArray[np.int64]:
        generator = np.random.default_rng(2)
        policy = kind(model, tasks, np.random.default_rng(3))
        return run_bandit(family, means[:tasks], policy, generator)

    ours = pull(TransformerPolicy, PULLING_TASKS)
    assert (ours == pull(ForgetfulPolicy, PULLING_TASKS)).all()
    compare(
        f"evaluate gaussian_bandit online, {TASKS} tasks",
        "pulls",
        Work(lambda: void(pull(TransformerPolicy, TASKS)), TASKS * horizon),
        Work(lambda: void(pull(ForgetfulPolicy, PULLING_TASKS)), PULLING_TASKS * horizon),
        "the whole context at every pull",
        30.0,
    )


class ForgetfulPolicy(TransformerPolicy):
    """Asks the model anew, with the whole context, at every pull."""

    def _before_any_pull(self) -> NDArray[np.float32]:
        states, columns = self._state[:, :0], self._state[:, :0, 0]
        self._past = Context(states, columns, columns, states)
        return ask_anew(self._model, self._past, self._state[:, 0])

    def observe(self, arms: NDArray[np.int64], rewards: NDArray[np.float32]) -> None:
        """Implement `BanditPolicy.observe`."""
        past = self._past
        states = torch.cat([past.states, self._state], dim=1)
        pulled = torch.cat([past.actions, torch.from_numpy(arms)[:, None]], dim=1)
        paid = torch.cat([past.rewards, torch.from_numpy(rewards)[:, None]], dim=1)
        self._past = Context(states, pulled, paid, states)
        self._logits = ask_anew(self._model, self._past, self._state[:, 0])


@torch.no_grad()
def ask_anew(model: Transformer, context: Context, states: torch.Tensor) -> NDArray[np.float32]:
    """(n, A): the answers to one state (n, d) each, behind the whole of its context."""
    whole = torch.full((len(states), 1, 1), context.actions.shape[1])
    return model(context, Queries(states[:, None], whole))[:, 0].numpy()


def darkroom() -> None:
    family = make_family(DarkroomConfig())
    assert isinstance(family, TabularFamily)
    model, steps = answering_model(family), TASKS * family.config.horizon
    mdps = family.mdps(family.parameters("test", 0, TASKS))

    answer = functools.partial(state_logits, model, family, batch_size=BATCH)

    def ours(mdps: TabularMDPs, episodes: int) -> NDArray[np.float32]:
        memory = LastEpisode(family, len(mdps.rewards), family.config.horizon)
        generator = np.random.default_rng(0)
        return online_returns(answer, memory, family, mdps, episodes, generator)[0]

    some = TabularMDPs(mdps.next_states[:WALKING_TASKS], mdps.rewards[:WALKING_TASKS])
    assert (ours(some, 2) == forgetful_returns(model, family, some, 2)).all()
    compare(
        f"evaluate darkroom online, {TASKS} tasks, 40 episodes",
        "steps",
        Work(lambda: void(ours(mdps, 40)), steps * 40),
        Work(
            lambda: void(forgetful_returns(model, family, some, WALKING_EPISODES)),
            WALKING_TASKS * family.config.horizon * WALKING_EPISODES,
        ),
        "a forward pass at every step",
        10.0,
    )


def forgetful_returns(
    model: Transformer, family: TabularFamily, mdps: TabularMDPs, episodes: int
) -> NDArray[np.float32]:
    """(n, E): `online_returns` with a forward pass at every step."""
    generator = np.random.default_rng(0)
    n_tasks, returns = len(mdps.rewards), []
    context = as_context(family, no_transitions(family, n_tasks))
    cells = torch.from_numpy(family.coordinates)
    for _ in range(episodes):
        uniforms = generator.random((family.config.horizon, n_tasks))

        def act(
            states: NDArray[np.int64], step: int, past: Context, uniforms: NDArray[np.float64]
        ) -> NDArray[np.int64]:
            return sampled(ask_anew(model, past, cells[torch.from_numpy(states)]), uniforms[step])

        choose = functools.partial(act, past=context, uniforms=uniforms)
        episode = play_episode(family, mdps, choose, generator)
        returns.append(episode.rewards.sum(axis=1))
        context = as_context(family, episode)
    return np.stack(returns, axis=1)


def components() -> None:
    """Choose actions of several components in turn, each with a query of its own."""
    compare(
        f"choose actions of {COMPONENTS} components under {ACTING_TASKS} contexts",
        "actions",
        choosing(COMPONENTS),
        choosing(1),
        "one component",
        0.9 / COMPONENTS,
    )


def choosing(components: int) -> Work:
    """Sample actions of ACTING_STEPS steps, under each of n encoded contexts."""
    torch.manual_seed(0)
    size, horizon, n = 17, 200, ACTING_TASKS  # as HalfCheetah's
    inputs = Inputs(11, horizon, (0.0,) * size, (1.0,) * size, components=components)
    states, actions = torch.randn(n, horizon, size), 2 * torch.rand(n, horizon, components) - 1
    context = Context(states, actions, torch.randn(n, horizon), states)
    model = Transformer(ModelConfig(), inputs).eval()
    encoded = EncodedContexts.of_tokens(model, tokens_of(model, context, BATCH), BATCH)
    decide = deciding(model, encoded.ask, (np.arange(n), np.zeros(n, np.int64)))
    generator, seen = np.random.default_rng(0), states[:, 0].numpy()

    def run() -> None:
        for _ in range(ACTING_STEPS):
            decide(seen, lambda logits: bins.drawn(logits, generator))

    return Work(run, n * ACTING_STEPS)


def elements() -> None:
    """`sad-hpc evaluate` of one (method, seed) of every tabular family."""
    with tempfile.TemporaryDirectory() as runs:
        for path in ("paper/gaussian_bandit", "paper/darkroom", "paper/darkroom_large",
                     "permuted_darkroom"):  # fmt: skip
            config: list[str | Path] = [CONFIGS / f"{path}.yaml", *SMALL, "--runs", runs]
            command([BIN / "sad-hpc", "collect", *config])
            command([BIN / "sad-hpc", "pretrain", *config, "--row", "SAD", "--seed", "0"])
            element(config)
            element([*config, "evaluate.acting=auto"], " with the choice of an acting rule", 50.0)
        # It plays with the Gaussian bandits' model.
        config = [CONFIGS / "paper/bernoulli_bandit.yaml", "data.tasks=1200"]
        config += [*(f"pretrained.{setting}" for setting in SMALL), "--runs", runs]
        command([BIN / "sad-hpc", "collect", *config])
        element(config)


def element(config: list[str | Path], kind: str = "", target_seconds: float = 20.0) -> None:
    """Measure a whole command: offline and online, references, files and start-up."""
    arguments = [BIN / "sad-hpc", "evaluate", *config, "--row", "SAD", "--seed", "0"]
    seconds, peak = timed(lambda: command(arguments, OMP_NUM_THREADS="1"))
    report(
        f"evaluate {Path(config[0]).stem}: an element{kind} (measured once)",
        1,
        "elements",
        seconds,
        peak_mib=peak / 2**20,
        target_seconds=target_seconds,
    )


if __name__ == "__main__":
    bench_evaluation()
