"""A model's weights before training."""

import math

from torch import nn

from sad_hpc.experiment.sections import ModelConfig


def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Weights ~ N(0, std), biases 0; std is 1 / sqrt(fan_in) (`scaled`) or 0.02 (`gpt2`).

    GPT-2's 0.02 is meant for width 768: at width 32 it leaves the signal too small to learn from.
    Only `gpt2` divides projections into the residual stream by sqrt(2 layers): with `scaled`, that
    was measured to slow learning down by about two epochs on Darkroom.
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
            # As in `scaled` whatever the transformer's: images do not pass through GPT-2's norm.
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
