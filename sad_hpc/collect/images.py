"""Images of the states in a block of Miniworld tasks."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import LABELS, Block

Render = Callable[[NDArray[np.float64]], NDArray[np.uint8]]
"""Map poses (n, 3) to images (n, s, s, 3)."""


def add_images(block: Block, render: Render) -> Block:
    """Return the block with an image of every context state and query state.

    New arrays: `transitions/images` and `episodes/images` (n, T, s, s, 3), and
    `labels/*/query_images` (n, K, s, s, 3); uint8.
    """
    sources = {f"{group}/states": f"{group}/images" for group in ("transitions", "episodes")}
    sources |= {f"labels/{name}/query_states": f"labels/{name}/query_images" for name in LABELS}
    images = {image: _rendered(render, block.arrays[states]) for states, image in sources.items()}
    return replace(block, arrays={**block.arrays, **images})


def _rendered(render: Render, poses: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return images (..., s, s, 3) at poses (..., 3)."""
    images = render(poses.reshape(-1, 3))
    return images.reshape(*poses.shape[:-1], *images.shape[1:])
