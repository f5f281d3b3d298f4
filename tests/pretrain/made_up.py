"""Training examples of random columns with distinguishable queries."""

import torch

from sad_hpc.experiment.methods import METHODS
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.questions import Batch

N, T, A = 6000, 8, 5


def make_columns(queries: int = 1, stateless: bool = False) -> dict[str, torch.Tensor]:
    """Random ones; a query's label and its first coordinate are its number."""
    generator = torch.Generator().manual_seed(0)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, (N, *shape), generator=generator, dtype=torch.uint8)

    width, states = (1, 1) if stateless else (2, 7)
    numbers = torch.arange(queries, dtype=torch.uint8).expand(N, -1)
    asked = torch.stack([numbers, draw(7, queries)], dim=2)
    return {
        "states": draw(states, T, width),
        "actions": draw(A, T),
        "rewards": torch.rand(N, T, generator=generator),
        "next_states": draw(states, T, width),
        "query_states": torch.zeros_like(asked[..., :1]) if stateless else asked,
        "labels": numbers,
        "weights": torch.rand(N, T, generator=generator),
    }


def make_examples(
    method: str, queries: int = 1, stateless: bool = False, device: str = "cpu"
) -> Examples:
    made = make_columns(queries, stateless)
    columns = {name: column.to(device) for name, column in made.items()}
    if method != "DIT":
        del columns["weights"]
    return Examples(METHODS[method], columns, 1000, stateless)


def make_batch(examples: Examples, size: int, seed: int = 0, step: int = 0) -> Batch:
    rows = torch.arange(size, device=examples.device)
    return examples.batch(rows, examples.draws(seed, step, size))
