import pytest
import torch

from sad_hpc.model import image_encoder
from sad_hpc.model.image_encoder import IMAGE_FEATURES, ImageEncoder
from sad_hpc.tasks.miniworld.family import MiniworldConfig


def random_pictures(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


@torch.no_grad()
def test_the_smallest_pictures_can_be_encoded():
    size = MiniworldConfig(image_size=13).image_size
    pictures = random_pictures(2, 3, size, size, 3)
    assert ImageEncoder(size)(pictures).shape == (2, 3, IMAGE_FEATURES)


@torch.no_grad()
def test_parts_of_a_batch_are_encoded_like_the_whole(monkeypatch: pytest.MonkeyPatch):
    encoder, pictures = ImageEncoder(25), random_pictures(2, 5, 25, 25, 3)
    whole = encoder(pictures)
    monkeypatch.setattr(image_encoder, "PICTURES_AT_ONCE", 3)
    assert torch.allclose(encoder(pictures), whole, atol=1e-6)
