import pytest
import torch

from sad_hpc.model import image_encoder
from sad_hpc.model.image_encoder import IMAGE_FEATURES, ImageEncoder
from sad_hpc.tasks.miniworld.family import MiniworldConfig


def random_images(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


@torch.no_grad()
def test_the_smallest_images_can_be_encoded():
    size = MiniworldConfig(image_size=13).image_size
    images = random_images(2, 3, size, size, 3)
    assert ImageEncoder((size, size, 3))(images).shape == (2, 3, IMAGE_FEATURES)


@torch.no_grad()
def test_parts_of_a_batch_are_encoded_like_the_whole(monkeypatch: pytest.MonkeyPatch):
    encoder, images = ImageEncoder((25, 25, 3)), random_images(2, 5, 25, 25, 3)
    whole = encoder(images)
    monkeypatch.setattr(image_encoder, "IMAGES_AT_ONCE", 3)
    assert torch.allclose(encoder(images), whole, atol=1e-6)
