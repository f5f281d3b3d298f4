"""Batched images of the environment at given poses, equal to the last bit.

`MiniWorldEnv.render_obs` spends half of its time on static boxes and NumPy matrices, and a fifth on
an unused depth buffer.  Here room and boxes are one display list, the camera is eight numbers, and
only colors are resolved.  One frame buffer for several views would be slightly faster, but its
rasterization rounds differently from that of `miniworld`.
"""

import functools
import math
from ctypes import POINTER, cast

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import RenderError
from sad_hpc.tasks.miniworld.environment import MiniworldEnv
from sad_hpc.tasks.miniworld.gl import graphics

with graphics():
    from pyglet import gl


class Renderer:
    """A renderer of poses with an OpenGL context; use one a process (see `shared_renderer`)."""

    def __init__(self, image_size: int = 25) -> None:
        """Open a room whose images have `image_size` pixels along each side.

        Raises:
            UserError: OpenGL is missing.
        """
        self.image_size = image_size
        self._room = MiniworldEnv(image_size=image_size)

    def render(self, poses: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Render images of the room.

        Args:
            poses: (n, 3) x, z, heading.

        Returns:
            (n, s, s, 3) RGB, the first row on top.

        Raises:
            RenderError: OpenGL reports an error.
        """
        if poses.ndim != 2 or poses.shape[1] != 3:
            raise ValueError(f"poses must be (n, 3), not {poses.shape}")
        size, room = self.image_size, self._room
        images = np.empty((len(poses), size, size, 3), np.uint8)
        self._prepare()
        drawn, resolved = room.obs_fb.multi_fbo, room.obs_fb.final_fbo
        clear = gl.GL_COLOR_BUFFER_BIT | gl.GL_DEPTH_BUFFER_BIT
        square = (0, 0, size, size)
        eye_height = room.agent.cam_height
        address, stride = images.ctypes.data, size * size * 3
        for x, z, heading in poses.tolist():
            gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, drawn)
            gl.glClear(clear)
            gl.glLoadIdentity()
            # The rotation matrix of miniworld.math.gen_rot_matrix, rounded in the same way.
            a, c = math.cos(heading / 2), -math.sin(heading / 2)
            eye = (x, eye_height * (a * a + c * c), z)
            gl.gluLookAt(*eye, x + (a * a - c * c), eye[1], z + 2 * (a * c), 0, 1, 0)
            gl.glCallList(1)
            gl.glBindFramebuffer(gl.GL_DRAW_FRAMEBUFFER, resolved)
            gl.glBlitFramebuffer(*square, *square, gl.GL_COLOR_BUFFER_BIT, gl.GL_LINEAR)
            gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, resolved)
            pixels = cast(address, POINTER(gl.GLubyte))
            gl.glReadPixels(*square, gl.GL_RGB, gl.GL_UNSIGNED_BYTE, pixels)
            address += stride
        gl.glBindFramebuffer(gl.GL_FRAMEBUFFER, 0)
        error = gl.glGetError()
        if error:
            raise RenderError(f"OpenGL reports error {error:#x} while rendering: run this again")
        # OpenGL's first row is the lowest.
        return np.ascontiguousarray(images[:, ::-1])

    def _prepare(self) -> None:
        """Set the OpenGL state that all images share, as `miniworld` sets it for each image."""
        room = self._room
        room.shadow_window.switch_to()
        # Another room of this process may have overwritten the display list.
        room._render_static()
        room.obs_fb.bind()
        gl.glClearColor(*room.sky_color, 1.0)
        gl.glClearDepth(1.0)
        gl.glMatrixMode(gl.GL_PROJECTION)
        gl.glLoadIdentity()
        gl.gluPerspective(room.agent.cam_fov_y, 1.0, 0.04, 100.0)
        gl.glMatrixMode(gl.GL_MODELVIEW)
        gl.glPixelStorei(gl.GL_PACK_ALIGNMENT, 1)


@functools.cache
def shared_renderer(image_size: int = 25) -> Renderer:
    """Return the process's renderer for images of that size."""
    return Renderer(image_size)
