"""Images of the states in a block of Miniworld tasks."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import LABELS, Block
from sad_hpc.tasks.miniworld.renderer import Renderer


def add_images(block: Block, renderer: Renderer) -> Block:
    """Return the block with an image of every context state and query state.

    New arrays: `transitions/images` and `episodes/images` (n, T, s, s, 3), and
    `labels/*/query_images` (n, K, s, s, 3); uint8.

    Raises:
        UserError: OpenGL reports an error.
    """
    sources = {f"{group}/states": f"{group}/images" for group in ("transitions", "episodes")}
    sources |= {f"labels/{name}/query_states": f"labels/{name}/query_images" for name in LABELS}
    images = {
        image: render_all(renderer, block.arrays[states]) for states, image in sources.items()
    }
    return replace(block, arrays={**block.arrays, **images})


def render_all(renderer: Renderer, poses: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Render images (..., s, s, 3) at poses (..., 3)."""
    images = renderer.render(poses.reshape(-1, 3))
    return images.reshape(*poses.shape[:-1], *images.shape[1:])
