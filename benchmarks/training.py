"""Pretraining: tokens a second against Hugging Face's GPT-2 in a standard loop, and over ranks."""

import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from effects import bench_attention_effect, bench_optimizer_effects
from measure import REPEATS, Work, command, compare, report
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2Model

from sad_hpc.distributed import torch_process
from sad_hpc.engine import join_process_group, make_engine
from sad_hpc.examples import Examples
from sad_hpc.experiment import ModelConfig, PretrainConfig
from sad_hpc.methods import METHODS
from sad_hpc.model import Inputs, Transformer
from sad_hpc.pretrain import take_step
from sad_hpc.tasks import TaskFamily, make_family
from sad_hpc.tasks.bandit import GaussianBanditConfig
from sad_hpc.tasks.darkroom import DarkroomConfig

PAPER = Path(__file__).parent.parent / "configs/paper"
BIN = Path(sys.executable).parent
BATCH, DROPOUT = 64, 0.1


def bench_training() -> None:
    """One against two ranks; then one core against a standard loop."""
    ranks()  # first: whoever joins a process group has variables that others would inherit
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    join_process_group(torch_process())
    for family, steps, target in (
        (make_family(DarkroomConfig()), 8, 1.6),
        (make_family(GaussianBanditConfig()), 1, 4.0),
    ):
        columns = random_columns(family, steps * BATCH)
        size = steps * BATCH * (family.config.horizon + 1)
        ours = Work(OurLoop(family, columns).run, size)
        for attention_dropout, aim in ((DROPOUT, target), (0.0, None)):
            compare(
                f"pretrain {family.name}, T = {family.config.horizon}, one core",
                "tokens",
                ours,
                Work(PlainLoop(family, columns, attention_dropout).run, size),
                "Hugging Face's GPT2Model in a standard loop, attention dropout "
                f"{attention_dropout:g}",
                aim,
            )
        bench_attention_effect(columns, family)
        if steps > 1:  # of a long one they are too small a part to be seen
            bench_optimizer_effects(columns, family)


def random_columns(family: TaskFamily, tasks: int) -> dict[str, Tensor]:
    """A dataset's columns (see `Examples`), of random numbers."""
    horizon, width = family.config.horizon, len(family.state_center)

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, (tasks, *shape), dtype=torch.uint8)

    columns = {
        "states": draw(7, horizon, width),
        "actions": draw(family.n_actions, horizon),
        "rewards": torch.rand(tasks, horizon),
        "next_states": draw(7, horizon, width),
        "query_states": draw(7, width),
        "labels": draw(family.n_actions),
    }
    if family.image_size is not None:
        picture = (family.image_size, family.image_size, 3)
        columns |= {"images": draw(255, horizon, *picture), "query_images": draw(255, *picture)}
    return columns


class OurLoop:
    """The steps of `sad-hpc pretrain`: DeepSpeed's engine, compact inputs, fused attention."""

    def __init__(self, family: TaskFamily, columns: dict[str, Tensor]) -> None:
        self._examples = Examples(METHODS["SAD"], columns, holdout=0)
        config = PretrainConfig(epochs=1, batch_size=BATCH, gradient_clipping=0.0)
        model = Transformer(ModelConfig(dropout=DROPOUT), Inputs.of_family(family))
        self._engine = make_engine(model, config, torch_process())
        self.run()

    def run(self) -> None:
        """An epoch."""
        order = self._examples.order(0, 0)
        for rows in order.split(BATCH):
            take_step(self._engine, self._examples.batch(rows, torch.zeros_like(rows)), 1e-3)


class PlainLoop:
    """What public code for these models does: one-hot floats, a DataLoader, GPT2Model, AdamW."""

    def __init__(
        self, family: TaskFamily, columns: dict[str, Tensor], attention_dropout: float
    ) -> None:
        self._horizon, self._actions = family.config.horizon, family.n_actions
        states, following = columns["states"].float(), columns["next_states"].float()
        actions = F.one_hot(columns["actions"].long(), self._actions).float()
        rewards = columns["rewards"].unsqueeze(-1)
        labels = F.one_hot(columns["labels"].long(), self._actions).float()
        dataset = TensorDataset(
            columns["query_states"].float(), states, actions, following, rewards, labels
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


def ranks() -> None:
    """The whole stage on two ranks, each on a core, against one rank pinned to one core."""
    with tempfile.TemporaryDirectory() as runs:
        config = [PAPER / "darkroom.yaml", "data.tasks=2048", "pretrain.epochs=2", "seeds=[0]"]
        config += ["evaluate.tasks=4", "pretrain.holdout_tasks=64", "--runs", runs]
        command([BIN / "sad-hpc", "collect", *config])
        core = min(os.sched_getaffinity(0))
        stage = [BIN / "sad-hpc", "pretrain", *config, "--method", "SAD"]
        one = ["taskset", "-c", str(core), *stage]
        two = [BIN / "mpiexec", "-n", "2", *stage]
        epochs = [(epoch(two, Path(runs)), epoch(one, Path(runs))) for _ in range(REPEATS)]
    mine, theirs = (
        statistics.median(float(line["tokens_per_second"]) for line in column)
        for column in zip(*epochs, strict=True)
    )
    seconds = statistics.median(float(line["seconds"]) for line, _ in epochs)
    report(
        "pretrain darkroom, 2 ranks on 2 cores",
        round(mine * seconds),
        "tokens",
        seconds,
        reference="1 rank on 1 core",
        reference_rate=theirs,
        ratio=mine / theirs,
        target=1.7,
    )


def epoch(arguments: list[str | Path], runs: Path) -> dict[str, Any]:
    """What a training that begins anew says of its second epoch."""
    for folder in runs.glob("*/checkpoints"):
        shutil.rmtree(folder)
    command(arguments, OMP_NUM_THREADS="1")
    (metrics,) = runs.glob("*/checkpoints/*/metrics.jsonl")
    line: dict[str, Any] = json.loads(metrics.read_text().splitlines()[-1])
    return line


if __name__ == "__main__":
    bench_training()
