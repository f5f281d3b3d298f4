"""Matrix products of any size, computed in tiles with sums in registers.

Strides are arguments, so that one compilation serves every model without a loss of speed.
"""

from typing import Any

from numba import njit

from sad_hpc.model.fused.tile import tiles
from sad_hpc.model.fused.vectors import WIDE

INNER: dict[str, Any] = {
    "fastmath": {"contract"},
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Compilation options of functions that only kernels call."""


@njit(**INNER)
def product(m, rows, columns, depth, a, a_row, a_column, b, b_row, start, start_row, c, c_row):  # type: ignore[no-untyped-def]
    """Compute c[i, j] = start[i, j] + sum over k of a[i, k] b[k, j].

    `columns` is a multiple of 16.  m is the address of the memory; a, b, start and c are offsets.
    a[i, k] is at a + i a_row + k a_column; the other matrices are stored by rows.
    """
    j = 0
    if WIDE:
        while columns - j >= 48 and columns - j != 64:
            at, first, to = b + j, start + j, c + j
            tiles(m, rows, a, a_row, a_column, at, b_row, first, start_row, to, c_row, depth, 3)
            j += 48
        while columns - j >= 32:
            at, first, to = b + j, start + j, c + j
            tiles(m, rows, a, a_row, a_column, at, b_row, first, start_row, to, c_row, depth, 2)
            j += 32
    while j < columns:
        at, first, to = b + j, start + j, c + j
        tiles(m, rows, a, a_row, a_column, at, b_row, first, start_row, to, c_row, depth, 1)
        j += 16
