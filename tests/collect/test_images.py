import numpy as np

from sad_hpc.distill import make_block
from sad_hpc.distill.block import LABELS
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.miniworld.family import Miniworld, MiniworldConfig
from tests.gl import require_gl

require_gl()

from sad_hpc.collect.images import add_images  # noqa: E402 (only where OpenGL is)
from sad_hpc.tasks.miniworld.renderer import shared_renderer  # noqa: E402


def test_every_query_of_a_task_has_the_image_of_its_pose():
    family, renderer = Miniworld(MiniworldConfig(horizon=4)), shared_renderer(25)
    data = DataConfig(tasks=25, trust_horizon=3, queries_per_task=3)
    block = add_images(make_block(family, data, "train", 0), renderer.render)
    for label in LABELS:
        images = block.arrays[f"labels/{label}/query_images"]
        assert images.shape == (20, 3, 25, 25, 3) and images.dtype == np.uint8
        for task, query in np.ndindex(20, 3):
            pose = block.arrays[f"labels/{label}/query_states"][task, query]
            assert (images[task, query] == renderer.render(pose[None])[0]).all()
