"""A small CNN that encodes images of states, trained together with the transformer."""

import torch
from torch import Tensor, nn

IMAGE_FEATURES = 16
"""Number of features of an image."""

HIDDEN_IMAGE_FEATURES = 64
"""Width of the image encoder's hidden layer."""

IMAGES_AT_ONCE = 256
"""Images in one pass on a CPU, so that activations stay in the cache."""

PIXEL_CENTER, PIXEL_SCALE = 128.0, 1 / 32
"""Offset and factor that scale pixels, like states, to about [-2, 2]."""


class ImageEncoder(nn.Module):
    """A CNN with two 3x3 convolutions of 16 channels (strides 2 and 1) and a hidden layer.

    A 2x2 average pool is between the convolutions.  Without pool or hidden layer, or with 8
    features, some trainings do not use the context for many epochs.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        """Make an encoder of images (H, W, C); H and W are at least 13."""
        super().__init__()
        height, width = (((side - 3) // 2 + 1) // 2 - 2 for side in shape[:2])
        self.layers = nn.Sequential(
            nn.Conv2d(shape[2], 16, 3, stride=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 16, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * height * width, HIDDEN_IMAGE_FEATURES),
            nn.ReLU(),
            nn.Linear(HIDDEN_IMAGE_FEATURES, IMAGE_FEATURES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Encode images (..., H, W, C) uint8 as features (..., IMAGE_FEATURES)."""
        flat = images.flatten(0, -4)  # (n, H, W, C)
        size = IMAGES_AT_ONCE if flat.device.type == "cpu" else max(1, len(flat))
        features = torch.cat([self._encode(part) for part in flat.split(size)])
        return features.view(*images.shape[:-3], IMAGE_FEATURES)

    def _encode(self, images: Tensor) -> Tensor:
        """Encode images (n, H, W, C) uint8 in one pass, (n, IMAGE_FEATURES)."""
        first = self.layers[0]
        assert isinstance(first, nn.Conv2d)
        channels_first = images.permute(0, 3, 1, 2)
        pixels = channels_first.to(first.weight.dtype, memory_format=torch.contiguous_format)
        features: Tensor = self.layers(pixels.sub_(PIXEL_CENTER).mul_(PIXEL_SCALE))
        return features
