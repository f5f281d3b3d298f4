import pytest
import torch

from sad_hpc.model.fixed_context import FixedContexts
from tests.model.test_transformer import model, random_context


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 12])
@torch.no_grad()
def test_answers_are_those_of_the_whole_model(layers: int, length: int):
    """For any query under any of the contexts, also one that is asked about more than once."""
    network = model(layers=layers)
    network.blocks[0].attention.query_key_value.weight.mul_(3)  # shares far from equal ones
    _, context = random_context(70, 12)
    context = context.map(lambda part: part[:, :length])
    contexts = FixedContexts(network, network.context_tokens(context))
    rows = torch.tensor([3, 69, 3, 0, 40])
    queries, _ = random_context(5, 1)
    ours = contexts.answer(rows, network.query_token(network.features(queries)))
    whole = network(queries, context.map(lambda part: part[rows]))[:, -1]
    assert torch.allclose(ours, whole, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)
