"""Pretraining: answers a second against Hugging Face's GPT-2 in a standard loop, and over ranks."""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from effects import bench_attention_effect, bench_image_effects, bench_optimizer_effects
from measure import Work, compare
from steps import BATCH, Steps, random_columns
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2Model

from sad_hpc.parallel.ranks import torch_process
from sad_hpc.pretrain.engine import join_process_group
from sad_hpc.tasks.bandit import GaussianBanditConfig
from sad_hpc.tasks.base import TaskFamily, make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import MiniworldConfig

BIN = Path(sys.executable).parent
DROPOUT = 0.1


def bench_training() -> None:
    """One against two ranks; then one core against a standard loop."""
    # First: whoever joins a process group has variables that others would inherit.
    ranks("darkroom", 24)
    ranks("gaussian_bandit", 1)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    join_process_group(torch_process())
    for family, steps, target in (
        (make_family(DarkroomConfig()), 8, 1.6),
        (make_family(GaussianBanditConfig()), 1, 4.0),
    ):
        columns = random_columns(family, steps * BATCH)
        training = Steps(family, columns)
        ours = Work(training.by_engine(dropout=DROPOUT), training.answers)
        for attention_dropout, aim in ((DROPOUT, target), (0.0, None)):
            compare(
                f"pretrain {family.name}, T = {family.config.horizon}, one core",
                "answers",
                ours,
                Work(PlainLoop(family, columns, attention_dropout).run, training.answers),
                "Hugging Face's GPT2Model in a standard loop, attention dropout "
                f"{attention_dropout:g}",
                aim,
            )
        if steps > 1:
            bench_attention_effect(training)
            bench_optimizer_effects(training)
        else:  # the slow side takes long enough with fewer tasks; the optimizer's part is too small
            bench_attention_effect(Steps(family, random_columns(family, BATCH // 4)))
    rooms = make_family(MiniworldConfig())
    bench_image_effects(Steps(rooms, random_columns(rooms, 2 * BATCH)))


class PlainLoop:
    """What public code for these models does: one-hot floats, a DataLoader, GPT2Model, AdamW."""

    def __init__(
        self, family: TaskFamily, columns: dict[str, Tensor], attention_dropout: float
    ) -> None:
        self._horizon, self._actions = family.config.horizon, family.n_actions
        states, following = columns["states"].float(), columns["next_states"].float()
        actions = F.one_hot(columns["actions"].long(), self._actions).float()
        rewards = columns["rewards"].unsqueeze(-1)
        labels = F.one_hot(columns["labels"][:, 0].long(), self._actions).float()
        dataset = TensorDataset(
            columns["query_states"][:, 0].float(), states, actions, following, rewards, labels
        )
        self._batches = DataLoader(dataset, batch_size=BATCH, shuffle=True)
        self._model = PlainModel(
            2 * states.shape[-1] + self._actions + 1,
            self._actions,
            self._horizon,
            attention_dropout,
        )
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3, weight_decay=1e-4)
        self._loss = nn.CrossEntropyLoss()
        self.run()

    def run(self) -> None:
        """An epoch."""
        for query, states, actions, following, rewards, labels in self._batches:
            answers = self._model(query, states, actions, following, rewards)
            every = labels.unsqueeze(1).repeat(1, self._horizon + 1, 1)
            self._optimizer.zero_grad()
            loss = self._loss(answers.reshape(-1, self._actions), every.reshape(-1, self._actions))
            loss.backward()
            self._optimizer.step()


class PlainModel(nn.Module):
    """Hugging Face's GPT-2 of the paper's size; 4 heads, where ours has 3: 32 / 3 is no width."""

    def __init__(self, width: int, actions: int, horizon: int, attention_dropout: float) -> None:
        super().__init__()
        self.transformer = GPT2Model(
            GPT2Config(
                vocab_size=1, n_positions=horizon + 1, n_embd=32, n_layer=3, n_head=4,
                resid_pdrop=DROPOUT, embd_pdrop=DROPOUT, attn_pdrop=attention_dropout,
                use_cache=False,
            )
        )  # fmt: skip
        self.embed = nn.Linear(width, 32)
        self.head = nn.Linear(32, actions)

    def forward(
        self, query: Tensor, states: Tensor, actions: Tensor, following: Tensor, rewards: Tensor
    ) -> Tensor:
        """(B, T + 1, A)."""
        zeros = torch.zeros(len(query), 1, self.embed.in_features - query.shape[-1])
        first = torch.cat([query.unsqueeze(1), zeros], dim=2)
        rest = torch.cat([states, actions, following, rewards], dim=2)
        tokens = self.embed(torch.cat([first, rest], dim=1))
        return self.head(self.transformer(inputs_embeds=tokens).last_hidden_state)


def ranks(name: str, steps: int) -> None:
    """Two ranks, each on a core, against one rank pinned to one core, with the same batches.

    Turns of about a second, as the speed of this or that core changes within minutes.
    """
    worker = [sys.executable, Path(__file__).parent / "training_rank.py", name, str(steps)]
    core = str(min(os.sched_getaffinity(0)))
    with (
        TrainingRanks([BIN / "mpiexec", "-n", "2", *worker]) as two,
        TrainingRanks(["taskset", "-c", core, *worker]) as one,
    ):
        compare(
            f"pretrain {name}, 2 ranks on 2 cores",
            "answers",
            Work(two.run, two.answers),
            Work(one.run, one.answers),
            "1 rank on 1 core",
            1.7,
            turns=7,
        )


class TrainingRanks:
    """Ranks that wait in the background, and train for an epoch when they are told to."""

    def __init__(self, arguments: list[str | Path]) -> None:
        self._process = subprocess.Popen(
            list(map(str, arguments)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.answers = int(self._answer())

    def __enter__(self) -> "TrainingRanks":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self) -> int:
        """An epoch; returns rank 0's peak memory in bytes."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


if __name__ == "__main__":
    bench_training()
