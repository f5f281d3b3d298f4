"""Initialization of a model's weights."""

import math

from torch import nn

from sad_hpc.experiment.sections import ModelConfig


def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Draw weights from N(0, std), and set biases to 0.

    The std is 1 / sqrt(fan_in) (`scaled`) or 0.02 (`gpt2`).  GPT-2's 0.02 is for width 768 and too
    small for width 32.  Only `gpt2` divides projections into the residual stream by
    sqrt(2 layers), because this slows learning with `scaled`.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            std = module.in_features**-0.5
            if config.initialization == "gpt2":
                into_residual = name.endswith(("attention.projection", "feed_forward.2"))
                std = 0.02 / math.sqrt(2 * config.layers) if into_residual else 0.02
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            # Always as in `scaled`, because images do not pass through GPT-2's norm.
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
