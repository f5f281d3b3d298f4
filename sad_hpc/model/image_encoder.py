"""A small CNN: what the model sees of an image.  Trained together with the transformer."""

import torch
from torch import Tensor, nn

IMAGE_FEATURES = 16
"""Numbers that the image encoder makes of an image."""

HIDDEN_IMAGE_FEATURES = 64
"""Width of the image encoder's hidden layer."""

IMAGES_AT_ONCE = 256
"""Of a core: what is between the layers stays in its cache, and memory is used again."""

PIXEL_CENTER, PIXEL_SCALE = 128.0, 1 / 32
"""Pixels, like states, reach the model in about [-2, 2]: in 0..1 they would hardly vary."""


class ImageEncoder(nn.Module):
    """A small CNN: two 3x3 convolutions of 16 channels, strides 2 and 1, to IMAGE_FEATURES.

    Between the convolutions means of 2x2, after them a hidden layer.  Without these, or with 8
    features, some trainings stay for many epochs where the context is of no use.
    """

    def __init__(self, image_size: int) -> None:
        super().__init__()
        side = ((image_size - 3) // 2 + 1) // 2 - 2
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 16, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * side * side, HIDDEN_IMAGE_FEATURES),
            nn.ReLU(),
            nn.Linear(HIDDEN_IMAGE_FEATURES, IMAGE_FEATURES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(..., s, s, 3) uint8 -> (..., IMAGE_FEATURES)."""
        flat = images.flatten(0, -4)  # (n, s, s, 3)
        size = IMAGES_AT_ONCE if flat.device.type == "cpu" else max(1, len(flat))
        features = torch.cat([self._encode(part) for part in flat.split(size)])
        return features.view(*images.shape[:-3], IMAGE_FEATURES)

    def _encode(self, images: Tensor) -> Tensor:
        """(n, s, s, 3) uint8 -> (n, IMAGE_FEATURES)."""
        first = self.layers[0]
        assert isinstance(first, nn.Conv2d)
        channels_first = images.permute(0, 3, 1, 2)
        pixels = channels_first.to(first.weight.dtype, memory_format=torch.contiguous_format)
        features: Tensor = self.layers(pixels.sub_(PIXEL_CENTER).mul_(PIXEL_SCALE))
        return features
