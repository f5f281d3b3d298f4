"""Gradient clipping: the trainer clips plain gradients, DeepSpeed all others.

After the all-reduce every rank holds the whole plain gradient (fp32, ZeRO stage 0) and computes its
norm without communication, whereas DeepSpeed would reduce the norm over all ranks.  With bf16 or
ZeRO stages above 0, DeepSpeed owns the gradients and their norm.
"""

from typing import Any

import torch
from torch import Tensor


def deepspeed_limit(limit: float, zero_stage: int, bf16: bool) -> float:
    """Return the norm to which DeepSpeed clips; 0 where `clip_and_step` clips instead."""
    return limit if bf16 or zero_stage > 0 else 0.0


def clip_and_step(engine: Any, limit: float) -> Tensor:
    """Clip the gradient and step the optimizer, after the last part of a batch.

    Args:
        engine: DeepSpeed engine after its backward pass.
        limit: largest norm of the gradient; 0: no clipping.

    Returns:
        the norm of the mean gradient over all ranks, before clipping.
    """
    gradient = engine.module.flat.grad
    if not engine.is_gradient_accumulation_boundary():
        engine.step()
        return torch.zeros(())
    if gradient is None:  # ZeRO and bf16 keep the gradient elsewhere
        engine.step()
        return torch.as_tensor(engine.get_global_grad_norm() or 0.0)
    norm: Tensor = gradient.norm()
    if limit > 0 and engine.gradient_clipping() == 0:
        gradient.mul_((limit / (norm + 1e-6)).clamp(max=1))
    engine.step()
    return norm
