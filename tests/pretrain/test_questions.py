"""Queries after a context: distributions of prefixes, labels and weights, and attention masks."""

import dataclasses

import pytest
import torch

from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import ModelConfig
from sad_hpc.model.context import Context, Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.learner import action_loss
from sad_hpc.pretrain.questions import PastPrefix
from tests.pretrain.made_up import A, N, T, make_batch, make_columns, make_examples


def assert_uniform(values: torch.Tensor, n: int) -> None:
    """Assert that 0..n-1 are equally frequent, within five standard deviations."""
    share = 1 / n
    deviation = (len(values) * share * (1 - share)) ** 0.5
    counts = torch.bincount(values, minlength=n)
    assert len(counts) == n
    assert (counts - len(values) * share).abs().max() < 5 * deviation, counts


def test_one_query_is_asked_after_every_prefix():
    examples = make_examples("SAD")
    batch = make_batch(examples, 7)
    assert batch.queries.states.shape == (7, 1, 2)
    assert (batch.queries.prefixes == torch.arange(T + 1)).all()
    assert batch.labels.shape == (7, T + 1) and batch.weights is None
    assert batch.labels[:, batch.judged].shape == (7, 1), "accuracy is that after the whole context"
    assert examples.tokens == T + T + 1


@pytest.mark.parametrize("query", [0, 1, 2])
def test_every_packed_querys_prefix_is_uniform(query: int):
    batch = make_batch(make_examples("SAD", queries=3), N)
    here = batch.queries.states[..., 0] == query
    assert (here.sum(dim=1) == 1).all()
    assert_uniform(batch.queries.prefixes[..., 0][here], T + 1)


def test_packed_prefixes_are_independent():
    batch = make_batch(make_examples("SAD", queries=2), N)
    of_query = [batch.queries.prefixes[..., 0][batch.queries.states[..., 0] == k] for k in (0, 1)]
    assert_uniform(of_query[0] * (T + 1) + of_query[1], (T + 1) ** 2)


def test_packed_queries_keep_their_labels_and_come_in_the_order_of_their_prefixes():
    examples = make_examples("DPT", queries=3)
    batch = make_batch(examples, 50)
    assert (batch.queries.prefixes.diff(dim=1) >= 0).all()
    assert (batch.labels == batch.queries.states[..., 0]).all()
    assert batch.labels.dtype == torch.int64 and examples.tokens == T + 3


@pytest.mark.parametrize("method, queries", [("SAD", 1), ("SAD", 3), ("AD", 1), ("DIT", 1)])
@pytest.mark.parametrize("stateless", [False, True])
def test_ranks_share_one_batch(method: str, queries: int, stateless: bool):
    examples = make_examples(method, queries, stateless)
    rows, drawn = examples.order(0, 0)[:12], examples.draws(3, 5, 12)
    whole = examples.batch(rows, drawn)
    shares = [examples.batch(rows[part::3], drawn[part::3]) for part in range(3)]
    for part, share in enumerate(shares):
        assert torch.equal(share.labels, whole.labels[part::3])
        assert torch.equal(share.queries.prefixes, whole.queries.prefixes[part::3])
        assert torch.equal(share.queries.states, whole.queries.states[part::3])
        assert torch.equal(share.context.actions, whole.context.actions[part::3])
        if whole.weights is not None:
            assert torch.equal(share.weights, whole.weights[part::3])


def test_draws_are_a_function_of_seed_and_step():
    examples = make_examples("SAD", queries=3)
    assert torch.equal(examples.draws(0, 0, 64), examples.draws(0, 0, 64))
    assert not torch.equal(examples.draws(0, 0, 64), examples.draws(0, 1, 64))
    assert not torch.equal(examples.draws(0, 0, 64), examples.draws(1, 0, 64))


def test_each_prefix_of_a_bandit_has_one_of_its_labels():
    examples = make_examples("SAD", queries=4, stateless=True)
    batch = make_batch(examples, 2000)
    assert batch.queries.states.shape == (2000, 1, 1) and examples.tokens == T + 1
    assert (batch.queries.prefixes == torch.arange(T + 1)).all()
    for prefix in range(T + 1):
        assert_uniform(batch.labels[:, prefix], 4)
    assert_uniform(batch.labels[:, 0] * 4 + batch.labels[:, T], 16)


@pytest.mark.parametrize("method", ["AD", "DIT"])
def test_the_contexts_own_actions_are_asked_for_in_its_own_states(method: str):
    columns, examples = make_columns(), make_examples(method)
    batch = make_batch(examples, 50)
    assert batch.queries.states is batch.context.states, "so that the model encodes them once"
    assert torch.equal(batch.queries.states, columns["states"][:50])
    assert torch.equal(batch.labels, columns["actions"][:50].long())
    if method == "AD":
        assert batch.weights is None
        assert (batch.queries.prefixes[..., 0] == torch.arange(T)).all(), "after what came before"
    else:
        assert batch.weights is not None
        assert torch.equal(batch.weights, columns["weights"][:50])
    assert examples.tokens == 2 * T


def test_past_prefixes_do_not_show_the_labelled_transition():
    questions = PastPrefix(make_columns())
    drawn = torch.arange(T + 1).expand(T, -1).T
    prefixes = questions.prefixes(torch.arange(T + 1), drawn)
    for query in range(T):
        counts = torch.bincount(prefixes[:, query], minlength=query + 1)
        assert len(counts) == query + 1 and counts.min() >= 1, "0 to t, and each of them"
        assert counts.max() - counts.min() <= 1
    assert not make_batch(past_examples(), 5).queries.prefixes[:, 0].any()


def past_examples() -> Examples:
    return Examples(METHODS["DIT"], make_columns(), 1000, stateless=False, past=True)


def test_dit_asks_after_any_prefix_whatever_the_query():
    """The query is independent of the prefix, as DPT's is, and the prefixes of each other."""
    prefixes = make_batch(make_examples("DIT"), N).queries.prefixes[..., 0]
    for query in range(T):
        assert_uniform(prefixes[:, query], T + 1)
    assert_uniform(prefixes[:, 0] * (T + 1) + prefixes[:, T - 1], (T + 1) ** 2)


def test_dit_asks_after_each_prefix_of_a_bandit_for_any_of_its_pulls():
    """Each with its own weight."""
    columns, examples = make_columns(stateless=True), make_examples("DIT", stateless=True)
    pulls = torch.arange(T, dtype=torch.uint8).expand(N, -1)
    weights = 2.0 * pulls
    tagged = Examples(
        METHODS["DIT"], {**columns, "actions": pulls, "weights": weights}, 1000, stateless=True
    )
    batch = make_batch(tagged, N)
    assert (batch.queries.prefixes == torch.arange(T + 1)).all()
    for prefix in range(T + 1):
        assert_uniform(batch.labels[:, prefix], T)
    assert_uniform(batch.labels[:, 0] * T + batch.labels[:, T], T * T)
    assert batch.weights is not None
    assert torch.equal(batch.weights, 2.0 * batch.labels)
    assert examples.tokens == T + 1


@pytest.mark.parametrize("stateless", [False, True])
def test_dits_held_out_questions_are_fixed_and_even(stateless: bool):
    """Every pair of query and prefix comes once in T + 1 tasks (T where there is one state)."""
    examples = make_examples("DIT", stateless=stateless)
    tasks = T if stateless else T + 1
    batch = examples.held_out(torch.arange(5000, 5000 + tasks))
    again = examples.held_out(torch.arange(5000, 5000 + tasks))
    assert torch.equal(batch.queries.prefixes, again.queries.prefixes)
    assert torch.equal(batch.labels, again.labels)
    if not stateless:
        every = batch.queries.prefixes[..., 0].sort(dim=0).values
        assert (every == torch.arange(T + 1).unsqueeze(1)).all()


def test_a_bandits_loss_is_the_mean_over_its_pulls():
    columns, examples = make_columns(stateless=True), make_examples("AD", stateless=True)
    batch = make_batch(examples, 50)
    logits = torch.randn(50, T + 1, A, generator=torch.Generator().manual_seed(0))
    chosen = columns["actions"][:50].long().unsqueeze(2)
    losses = -logits[:, :T].log_softmax(2).gather(2, chosen).squeeze(2)
    expected = losses.mean().item()
    loss = action_loss(logits, batch.labels, batch.weights)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert batch.labels[:, batch.judged].shape == (50, T), "nothing follows the last pull"


@pytest.mark.parametrize("stateless", [False, True])
@torch.no_grad()
def test_no_answer_of_ad_sees_the_action_that_it_is_asked_for(stateless: bool):
    """Nor what follows it."""
    one = (0.0,) if stateless else (0.0, 0.0)
    torch.manual_seed(0)
    inputs = Inputs(A, T, one, one, stateless=stateless)
    model = Transformer(ModelConfig(layers=2), inputs).eval()
    batch = make_batch(make_examples("AD", stateless=stateless), 3)
    before = model(batch.context, batch.queries)
    for time in range(T):
        context = changed_from(batch.context, time)
        after = model(context, batch.queries)
        assert torch.equal(before[:, : time + 1], after[:, : time + 1])
        assert (before[:, time + 1 : T] != after[:, time + 1 : T]).any(dim=2).all()


def changed_from(context: Context, time: int) -> Context:
    """With other actions, rewards and next states from `time` on."""
    actions, rewards = context.actions.clone(), context.rewards.clone()
    next_states = context.next_states.clone()
    actions[:, time:] = (actions[:, time:] + 1) % A
    rewards[:, time:] += 1
    next_states[:, time:] = 6 - next_states[:, time:]
    return dataclasses.replace(context, actions=actions, rewards=rewards, next_states=next_states)


@pytest.mark.parametrize("stateless", [False, True])
def test_held_out_tasks_are_asked_the_papers_objective_however_many_queries(stateless: bool):
    batch = make_examples("SAD", 3, stateless).held_out(torch.tensor([5999, 5001]))
    assert (batch.queries.prefixes == torch.arange(T + 1)).all()
    assert batch.queries.states.shape[:2] == (2, 1)
    assert batch.labels.shape == (2, T + 1)
    # One state: each prefix has one of the labels, and every label as many prefixes.
    expected = (torch.tensor([[5999], [5001]]) + torch.arange(T + 1)) % 3 if stateless else 0
    assert (batch.labels == expected).all()
