"""HalfCheetah at a target velocity: labels as a policy, and what a network learns of them.

    pip install examples/cheetah_velocity
    python benchmarks/cheetah_labels.py      # writes results/theory/cheetah_labels.csv

Labels as a policy: the label of the agent's state is made anew at every step.  The network is told
the target velocity, which a model has to find out from its context, so its return tells what labels
of this number are worth to a model without that difficulty.  The cost of a label is its number of
simulated steps.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sad_hpc.distill import make_block
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior
from sad_hpc.distill.simulated import Distillation
from sad_hpc.evaluate.episode import returns_of
from sad_hpc.evaluate.simulated import Episodes
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.model import bins
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators
from sad_hpc.theory.table import write_table

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "configs/development/cheetah_velocity.yaml"
RULES = {
    "16 candidates, 10 steps, 4 rollouts": {"trust_horizon": 10, "episodes_per_action": 4},
    "16 candidates twice, 10 steps, 2 rollouts": {
        "trust_horizon": 10,
        "episodes_per_action": 2,
        "refinements": 1,
    },
    "16 candidates, 3 steps": {"trust_horizon": 3},
    "16 candidates five times, 3 steps": {"trust_horizon": 3, "refinements": 4},
    "16 candidates five times, 2 steps": {"trust_horizon": 2, "refinements": 4},
}
"""Settings of labels, beside those of FIRST."""
FIRST = {
    "tasks": 2000,
    "queries_per_task": 20,
    "candidates": 16,
    "episodes_per_action": 1,
    "refinements": 0,
}
N_TASKS, N_LABELS = 24, (4000, 16000)
"""Tasks that are played, and numbers of labels for the network."""
TEST, TRAIN = 1, 2
"""Seeds of the tasks that are played for returns, and of those that are played for labels."""
BINS, WIDTH, EPOCHS, BATCH, HELD_OUT = 11, 256, 12, 128, 0.1

OWN_PLAY, RANDOM_SHARE = "16 candidates five times, 3 steps", 0.3
"""Setting whose labels are made at the states of their own play, too, and the share of random
actions in that play."""

Returns = NDArray[np.float32]
Inputs = NDArray[np.float64]
Actions = NDArray[np.float32]


class Network(nn.Module):
    """Bins of each component of an action, by the state and the target velocity."""

    def __init__(self, inputs: Inputs, components: int) -> None:
        super().__init__()
        self.mean = torch.tensor(inputs.mean(0), dtype=torch.float32)
        self.scale = torch.tensor(inputs.std(0), dtype=torch.float32)
        hidden = [nn.Linear(inputs.shape[1], WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()]
        self.layers = nn.Sequential(*hidden, nn.Linear(WIDTH, components * BINS))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (n, a, BINS)."""
        return self.layers((inputs - self.mean) / self.scale).unflatten(1, (-1, BINS))


def trained(inputs: Inputs, actions: Actions) -> tuple[Network, float]:
    """Train on labels (n, d) and (n, a); return the best network and its held-out loss."""
    torch.manual_seed(0)
    network = Network(inputs, actions.shape[1])
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-4, weight_decay=0.1)
    asked, wanted = torch.tensor(inputs).float(), bins.bins_of(torch.tensor(actions), BINS)
    cut, best, kept = int(len(asked) * (1 - HELD_OUT)), np.inf, {}
    for _ in range(EPOCHS):
        for batch in torch.randperm(cut).split(BATCH):
            loss = nn.functional.cross_entropy(network(asked[batch]).mT, wanted[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            held_out = nn.functional.cross_entropy(network(asked[cut:]).mT, wanted[cut:]).item()
        if held_out < best:
            best, kept = held_out, {k: v.clone() for k, v in network.state_dict().items()}
    network.load_state_dict(kept)
    return network, best


@torch.no_grad()
def network_returns(family: SimulatedFamily, network: Network, reading: str) -> Returns:
    """Return the returns (N_TASKS,) of `sampled` actions or of each answer's `mean`."""
    generator = np.random.default_rng(TEST)
    parameters = family.draw_tasks("test", N_TASKS, generator)

    def act(simulators: Simulators, step: int) -> NDArray[np.float32]:
        inputs = np.concatenate([simulators.observations, parameters], axis=1)
        logits = network(torch.tensor(inputs).float()).numpy()
        return bins.drawn(logits, generator) if reading == "sampled" else bins.mean(logits)

    return returns_of(Episodes(family, parameters, generator).rollout(act))


def label_play(
    family: SimulatedFamily, data: DataConfig, seed: int, n_tasks: int, random_share: float
) -> tuple[Returns, Inputs, Actions]:
    """Play by labels that are made anew at every step, and with a share of random actions.

    Returns:
        returns (n,), states with targets (n T, d), and labels (n T, a).
    """
    generator, rule = np.random.default_rng(seed), LabelRule.of(data, family.sparse_reward)
    behavior = Behavior.of(family, np.arange(family.n_actions))
    parameters, rows = family.draw_tasks("test", n_tasks, generator), np.arange(n_tasks)
    search = Distillation(family, parameters, behavior, None, rule, 1, generator)
    asked: list[Inputs] = []
    found: list[Actions] = []

    def act(simulators: Simulators, step: int) -> NDArray[np.float32]:
        drawn = behavior.candidates(n_tasks, rule, generator)
        asked.append(np.concatenate([simulators.observations, parameters], axis=1))
        found.append(search.labelled(simulators, rows, drawn, rows)[1])
        is_random = generator.random(n_tasks) < random_share
        return np.where(is_random[:, None], drawn[:, 0], found[-1])

    returns = returns_of(Episodes(family, parameters, generator).rollout(act))
    return returns, np.concatenate(asked), np.concatenate(found)


def labels(family: SimulatedFamily, data: DataConfig) -> tuple[Inputs, Actions]:
    """Return states of random play with targets (n, d), and their labels (n, a)."""
    wanted, per_block = max(N_LABELS), data.block_tasks * data.queries_per_task
    inputs, actions = [], []
    for block in range(-(-wanted // per_block)):
        arrays = make_block(family, data, "train", block).arrays
        states, labelled = arrays["labels/sad/query_states"], arrays["labels/sad/actions"]
        told = np.repeat(arrays["tasks/parameters"][:, None], states.shape[1], axis=1)
        inputs.append(np.concatenate([states, told], axis=2).reshape(-1, states.shape[2] + 1))
        actions.append(labelled.reshape(-1, labelled.shape[2]))
    return np.concatenate(inputs), np.concatenate(actions)


def shuffled(inputs: Inputs, actions: Actions) -> tuple[Inputs, Actions]:
    """Return inputs and actions in one random order."""
    order = np.random.default_rng(0).permutation(len(inputs))
    return inputs[order], actions[order]


def _steps(rule: DataConfig) -> int:
    """Return the number of simulated steps of a label."""
    rollouts = rule.candidates * rule.episodes_per_action * (1 + rule.refinements)
    return rollouts * int(np.max(rule.trust_horizon))


def main() -> None:
    """Measure labels and networks."""
    torch.set_num_threads(1)
    experiment = load_experiment(CONFIG)
    family, lines = make_family(experiment.task), []
    assert isinstance(family, SimulatedFamily)

    def note(policy: str, name: str, returns: Returns, **others: object) -> None:
        mean, error = returns.mean(), returns.std(ddof=1) / np.sqrt(len(returns))
        line = {"label": name, "steps": _steps(rules[name]), "policy": policy, **others}
        lines.append({**line, "return": mean, "return_error": error})
        print(lines[-1], flush=True)

    def note_networks(name: str, states: str, inputs: Inputs, actions: Actions) -> None:
        inputs, actions = shuffled(inputs, actions)
        for count in N_LABELS:
            network, loss = trained(inputs[:count], actions[:count])
            for reading in ("sampled", "mean"):
                returns = network_returns(family, network, reading)
                what = {"states": states, "labels": count, "held_out_loss": loss}
                note(f"network, {reading}", name, returns, **what)

    data = experiment.data.model_copy(update=FIRST)
    rules = {name: data.model_copy(update=rule) for name, rule in RULES.items()}
    for name, rule in rules.items():
        note("label", name, label_play(family, rule, TEST, N_TASKS, 0.0)[0])
    for name, rule in rules.items():
        note_networks(name, "random play", *labels(family, rule))
    n_tasks = max(N_LABELS) // family.config.horizon
    _, *played = label_play(family, rules[OWN_PLAY], TRAIN, n_tasks, RANDOM_SHARE)
    note_networks(OWN_PLAY, "play by labels", *played)
    write_table(ROOT / "results", "cheetah_labels", pd.DataFrame(lines))


if __name__ == "__main__":
    main()
