"""The fused kernel of a transformer: its conditions, its compilation, and its autograd function."""

import mmap
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numba import config
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.model.fused.plan import Plan, Shape, plan
from sad_hpc.model.fused.step import answer_batch, answer_held, hold_batch, train_batch
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.model.transformer import Attention, Transformer, TransformerBlock

MOST_LAYERS, MOST_ACTIONS = 8, 64

_PAGE = 2 << 20
_PATIENCE_SECONDS = 120.0

_NOTHING = np.zeros((0, 0, 0), np.float32)


def obstacle(model: SequenceModel, device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why the kernel does not support this model, device and precision, or None."""
    if type(model) is not Transformer:
        return f"the model is {type(model).__name__}"
    shape = shape_of(model)
    if device.type != "cpu":
        return f"the device is {device.type}"
    if dtype != torch.float32:
        return f"the precision is {str(dtype).removeprefix('torch.')}"
    if shape.embedding % 16 or shape.head_width % 8:
        return (
            f"embedding {shape.embedding} is not a multiple of 16, or head width "
            f"{shape.head_width} not a multiple of 8"
        )
    if shape.layers > MOST_LAYERS or shape.n_actions > MOST_ACTIONS:
        return f"more than {MOST_LAYERS} layers or {MOST_ACTIONS} actions"
    if _attention(model).attention_dropout:
        return "attention dropout"
    return None


def _attention(model: Transformer) -> Attention:
    block = model.blocks[0]
    assert isinstance(block, TransformerBlock)
    return block.attention


def shape_of(model: Transformer) -> Shape:
    """Return the sizes of a model."""
    attention, inputs = _attention(model), model.inputs
    return Shape(
        layers=len(model.blocks),
        heads=attention.heads,
        embedding=model.embed.out_features,
        head_width=attention.projection.in_features // attention.heads,
        n_actions=inputs.n_actions,
        token_width=inputs.width,
        horizon=inputs.horizon,
        stateless=inputs.stateless,
    )


KEPT_MEMORIES = 8
"""Most numbers of transitions and queries whose memory a kernel keeps for the next call."""


class Kernel:
    """The kernel for losses and answers of one model with a flat tensor of weights.

    Args:
        model: model with the sizes.
        sizes: sizes of its parameters by name, in the order of the flat tensor.
    """

    def __init__(self, model: Transformer, sizes: dict[str, int]) -> None:
        self._shape, self._dropout = shape_of(model), model.dropout.p
        ends = np.cumsum(list(sizes.values()))
        starts = dict(zip(sizes, ends - list(sizes.values()), strict=True))
        names = [name for name in sizes if not name.startswith("images.")]
        self._where = np.array([starts[name] for name in names], np.int64)
        self._memories: dict[tuple[int, int], tuple[Plan, NDArray[np.float32]]] = {}

    def loss(
        self,
        flat: Tensor,
        tokens: Tensor,
        query_tokens: Tensor,
        prefixes: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        keys: NDArray[np.int64] | None,
    ) -> Tensor:
        """Return the mean over questions of weight x negative log-likelihood of the label, in nats.

        The gradients are computed in the same pass.

        Args:
            flat: (P,) weights.
            tokens: (B, t, width) transitions.
            query_tokens: (B, K, width).
            prefixes: (B, K); for stateless families 0 to t.
            labels: (B, K) int64.
            weights: (B, K), or None for ones.
            keys: (2,) random key of dropout; None: no dropout.
        """
        loss: Tensor = _Loss.apply(
            self, flat, tokens, query_tokens, prefixes, labels, weights, keys
        )
        return loss

    def answer(
        self, flat: Tensor, tokens: Tensor, query_tokens: Tensor, prefixes: Tensor
    ) -> Tensor:
        """Return the logits (B, K, A), without dropout and gradient; see `loss`."""
        batch, t = tokens.shape[:2]
        self._check(prefixes, t)
        asked, after = self._asked(query_tokens, prefixes)
        layout, memory = self._memory(t, asked.shape[1])
        answers = t + 1 if self._shape.stateless else prefixes.shape[1]
        logits = np.empty((batch, answers, self._shape.n_actions), np.float32)
        answer_batch(
            _array(flat), self._where, layout, _array(tokens), asked, after, memory, logits
        )
        result = torch.from_numpy(logits)
        if not self._shape.stateless:
            return result
        return result.gather(1, prefixes.unsqueeze(2).expand(-1, -1, result.shape[2]))

    def hold(self, flat: Tensor, tokens: Tensor) -> NDArray[np.float32]:
        """Return contexts (n, t, width) as `answer_held` reads them, (n, layers, ...)."""
        self._check(torch.zeros(1), tokens.shape[1])
        layout, memory = self._memory(tokens.shape[1], 1)
        sizes = layout.sizes
        row = 3 * sizes.heads * sizes.d_pad
        held = np.empty((len(tokens), sizes.layers, tokens.shape[1] * row), np.float32)
        hold_batch(_array(flat), self._where, layout, _array(tokens), memory, held)
        return held

    def answer_held(
        self,
        flat: Tensor,
        held: NDArray[np.float32],
        transitions: int,
        rows: NDArray[np.int64],
        query_tokens: Tensor,
    ) -> Tensor:
        """Return the logits (B, K, A) of queries after whole contexts.

        Args:
            flat: (P,) weights.
            held: n contexts; see `hold`.
            transitions: t.
            rows: (B,), the context of each sequence.
            query_tokens: (B, K, width).
        """
        layout, memory = self._memory(transitions, query_tokens.shape[1])
        logits = np.empty((*query_tokens.shape[:2], self._shape.n_actions), np.float32)
        asked = _array(query_tokens)
        answer_held(_array(flat), self._where, layout, held, rows, asked, memory, logits)
        return torch.from_numpy(logits)

    def train(
        self,
        flat: Tensor,
        tokens: Tensor,
        query_tokens: Tensor,
        prefixes: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        keys: NDArray[np.int64] | None,
        with_tokens: bool,
    ) -> tuple[float, Tensor, Tensor | None, Tensor | None]:
        """Return a loss and its gradients with respect to weights, tokens and queries."""
        self._check(prefixes, tokens.shape[1])
        if not 0 <= int(labels.min()) <= int(labels.max()) < self._shape.n_actions:
            raise ValueError("a label is not an action")
        if self._shape.stateless and labels.shape[1] != tokens.shape[1] + 1:
            raise ValueError("a stateless family needs one label for every prefix")
        asked, after = self._asked(query_tokens, prefixes)
        layout, memory = self._memory(tokens.shape[1], asked.shape[1])
        slopes = np.zeros(len(flat), np.float32)
        d_tokens, d_queries = _NOTHING, _NOTHING
        if with_tokens:
            d_tokens, d_queries = np.empty(tokens.shape, np.float32), np.empty_like(asked)
        share = np.ones(labels.shape, np.float32) if weights is None else _array(weights)
        loss = train_batch(
            _array(flat), slopes, self._where, layout, _array(tokens), asked, after,
            _array(labels), share, 0.0 if keys is None else self._dropout,
            np.zeros(2, np.int64) if keys is None else keys, memory, d_tokens, d_queries,
        )  # fmt: skip
        if not with_tokens:
            return loss, torch.from_numpy(slopes), None, None
        every = torch.zeros_like(query_tokens)
        every[:, : asked.shape[1]] = torch.from_numpy(d_queries)
        return loss, torch.from_numpy(slopes), torch.from_numpy(d_tokens), every

    def _check(self, prefixes: Tensor, transitions: int) -> None:
        """Raise ValueError for lengths beyond the plan; compiled code does not check bounds."""
        if transitions > self._shape.horizon:
            raise ValueError(f"more than {self._shape.horizon} transitions")
        if not 0 <= int(prefixes.min()) <= int(prefixes.max()) <= transitions:
            raise ValueError(f"a prefix is outside of 0 to {transitions} transitions")

    def _asked(
        self, query_tokens: Tensor, prefixes: Tensor
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the queries that occupy rows of the sequence, and their prefixes."""
        if self._shape.stateless:
            query_tokens, prefixes = query_tokens[:, :1], torch.zeros_like(prefixes[:, :1])
        return _array(query_tokens), _array(prefixes)

    def _memory(self, transitions: int, queries: int) -> tuple[Plan, NDArray[np.float32]]:
        lengths = transitions, queries
        memory = self._memories.pop(lengths, None)
        if memory is None:
            layout = plan(self._shape, transitions, queries)
            memory = layout, _zeros(layout.size)
        self._memories[lengths] = memory
        if len(self._memories) > KEPT_MEMORIES:  # the first one was not used for longest
            del self._memories[next(iter(self._memories))]
        return memory


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Compute the loss of a kernel, and keep its gradients for `backward`."""
        kernel, *others = inputs
        with_tokens = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
        loss, *ctx.slopes = kernel.train(*others, with_tokens=with_tokens)
        return torch.tensor(loss, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Return the gradients of `forward`, scaled by that of the loss."""
        scaled = [each if each is None else each.mul_(slopes[0]) for each in ctx.slopes]
        return (None, *scaled, None, None, None, None)


def is_compiled() -> bool:
    """Return whether the compiled kernel is in this machine's cache."""
    return any(Path(config.CACHE_DIR).rglob(f"step.{train_batch.__name__}-*.nbc"))


def compile_kernel() -> None:
    """Compile the kernel or load it from the cache; print a line before a compilation.

    If several trainings start together, one compiles and the others wait.
    """
    with ExitStack() as stack:
        # If the lock fails, each process compiles the kernel.
        with suppress(OSError, NotImplementedError, Timeout):
            folder = Path(config.CACHE_DIR)
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder / ".compiling", timeout=_PATIENCE_SECONDS))
        if not is_compiled():
            print("compiling the training step: about 20 s, once a machine", flush=True)
        _call_once()


def _call_once() -> None:
    """Call every compiled function once, with the smallest model."""
    shape = Shape(1, 1, 16, 8, 2, 4, 1, stateless=False)
    layout = plan(shape, 1, 1)
    where = np.arange(19, dtype=np.int64) * 1024  # larger than each of its tensors
    flat, memory = np.zeros(20 * 1024, np.float32), np.zeros(layout.size, np.float32)
    tokens, ones = np.zeros((1, 1, 4), np.float32), np.ones((1, 1), np.int64)
    inputs = (where, layout, tokens, tokens, ones)
    keys = np.zeros(2, np.int64)
    train_batch(
        flat, flat.copy(), *inputs, ones, ones.astype(np.float32), 0.0, keys, memory,
        tokens.copy(), tokens.copy(),
    )  # fmt: skip
    logits, held = np.zeros((1, 1, 2), np.float32), np.zeros((1, 1, 48), np.float32)
    answer_batch(flat, *inputs, memory, logits)
    hold_batch(flat, where, layout, tokens, memory, held)
    answer_held(flat, where, layout, held, np.zeros(1, np.int64), tokens, memory, logits)


def _zeros(size: int) -> NDArray[np.float32]:
    """Allocate zeros (size,), in large pages if Linux has them, which are faster."""
    block = mmap.mmap(-1, 4 * size + 2 * _PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            block.madvise(mmap.MADV_HUGEPAGE)
    every = np.frombuffer(block, np.float32)
    start = -every.ctypes.data % _PAGE // 4
    return every[start : start + size]


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().contiguous().numpy()
