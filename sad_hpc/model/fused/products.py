"""Products of matrices of any size, tile by tile, with sums in registers.

Strides are arguments, so that one compilation serves every model; measured, this costs nothing
against constants.
"""

from typing import Any

from numba import njit

from sad_hpc.model.fused.tile import tile
from sad_hpc.model.fused.vectors import WIDE

INNER: dict[str, Any] = {
    "fastmath": {"contract"},
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""How functions are compiled that only kernels call."""

TILE_ROWS: dict[int, tuple[int, ...]] = {1: (6, 3, 2, 1)}
if WIDE:
    TILE_ROWS = {1: (16, 8, 4, 2, 1), 2: (12, 8, 4, 2, 1), 3: (8, 4, 2, 1)}
"""Rows of a tile, by its vectors: as many sums as registers hold, and what is left over."""


def _tile(n_rows: int, n_vectors: int) -> Any:
    @njit(**INNER)
    def one(m, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth):  # type: ignore[no-untyped-def]  # pragma: no cover
        tile(m, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth, n_rows, n_vectors)

    return one


def _rows(n_vectors: int, sizes: tuple[int, ...]) -> Any:
    """All rows of a product of 16 `n_vectors` columns, in tiles of these sizes."""
    size, one = sizes[0], _tile(sizes[0], n_vectors)
    rest = _rows(n_vectors, sizes[1:]) if sizes[1:] else one

    @njit(**INNER)
    def every_row(m, rows, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth):  # type: ignore[no-untyped-def]  # pragma: no cover
        while rows >= size:
            one(m, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth)
            rows -= size
            a, start, c = a + size * a_row, start + size * start_row, c + size * c_row
        if size > 1 and rows:
            rest(m, rows, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth)

    if size > 1:
        return every_row

    @njit(**INNER)
    def last_rows(m, rows, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth):  # type: ignore[no-untyped-def]  # pragma: no cover
        for i in range(rows):
            one(
                m,
                a + i * a_row,
                a_row,
                a_column,
                b,
                b_row,
                start + i * start_row,
                start_row,
                c + i * c_row,
                c_row,
                depth,
            )

    return last_rows


_one = _rows(1, TILE_ROWS[1])
_two, _three = (_rows(n, TILE_ROWS[n]) if WIDE else _one for n in (2, 3))


@njit(**INNER)
def product(m, rows, columns, depth, a, a_row, a_column, b, b_row, start, start_row, c, c_row):  # type: ignore[no-untyped-def]  # pragma: no cover
    """c[i, j] = start[i, j] + sum over k of a[i, k] b[k, j]; `columns` is a multiple of 16.

    m is the memory's address, a, b, start and c are offsets in it; a[i, k] is at
    a + i a_row + k a_column, the others by rows.
    """
    j = 0
    if WIDE:
        while columns - j >= 48 and columns - j != 64:
            _three(
                m, rows, a, a_row, a_column, b + j, b_row, start + j, start_row, c + j, c_row, depth
            )
            j += 48
        while columns - j >= 32:
            _two(
                m, rows, a, a_row, a_column, b + j, b_row, start + j, start_row, c + j, c_row, depth
            )
            j += 32
    while j < columns:
        _one(m, rows, a, a_row, a_column, b + j, b_row, start + j, start_row, c + j, c_row, depth)
        j += 16
