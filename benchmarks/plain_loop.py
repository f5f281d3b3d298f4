"""Pretraining as public code has it: Hugging Face's GPT-2 in a standard loop of torch."""

import torch
import torch.nn.functional as F
from steps import BATCH
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2Model

from sad_hpc.tasks.base import TaskFamily

DROPOUT = 0.1
"""On residuals and embeddings, as in ours."""


class PlainLoop:
    """Training as in public code: one-hot floats, a DataLoader, GPT2Model, AdamW."""

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
