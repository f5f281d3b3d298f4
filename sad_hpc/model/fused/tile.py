"""Tiles of matrix products whose sums stay in registers, written in LLVM's language."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from sad_hpc.model.fused.vectors import (
    FLOAT,
    I64,
    INT64,
    LENGTH,
    VECTOR_OF_16,
    WIDE,
    broadcast,
    load_vector,
    multiply_add,
    store_vector,
)

TILES = {1: (6, 3, 2, 1), 2: (3, 2, 1), 3: (2, 1)}
if WIDE:
    TILES = {1: (16, 8, 4, 2, 1), 2: (12, 8, 4, 2, 1), 3: (8, 4, 2, 1)}
"""Rows of a tile by its number of vectors: the most sums that fit into registers, then fewer."""


@intrinsic(prefer_literal=True)
def tiles(typing, m, rows, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth, width):  # type: ignore[no-untyped-def]
    """Compute all rows of a product with 16 `width` columns, for a literal width of 1 to 3:

    c[i, j] = start[i, j] + sum over k < depth of a[i, k] b[k, j],   i < rows, j < 16 width

    a[i, k] is at a + i a_row + k a_column; the other matrices are stored by rows; depth >= 1.
    """
    n_vectors = width.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(_rows_function(builder.module, n_vectors), args[:12])
        return context.get_dummy_value()

    return types.void(*(I64,) * 12, width), generate


def _function(module: Any, name: str, n_arguments: int) -> tuple[Any, bool]:
    """Return LLVM's function of this name, which is never inlined, and whether it is new."""
    if name in module.globals:
        return module.globals[name], False
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * n_arguments), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function, True


def _rows_function(module: Any, n_vectors: int) -> Any:
    """Return a function that uses the largest tile while enough rows remain, then smaller ones."""
    function, is_new = _function(module, f"sad_hpc_rows_{n_vectors}", 12)
    if not is_new:
        return function
    builder = ir.IRBuilder(function.append_basic_block())
    memory, rows, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth = function.args
    places = {}
    for name, value in {"rows": rows, "a": a, "start": start, "c": c}.items():
        places[name] = builder.alloca(INT64)
        builder.store(value, places[name])
    for size in TILES[n_vectors]:
        check, work, after = (function.append_basic_block() for _ in range(3))
        builder.branch(check)
        builder.position_at_end(check)
        left = builder.load(places["rows"])
        builder.cbranch(builder.icmp_signed(">=", left, INT64(size)), work, after)
        builder.position_at_end(work)
        at = {name: builder.load(place) for name, place in places.items()}
        builder.call(
            _tile_function(module, size, n_vectors),
            [memory, at["a"], a_row, a_column, b, b_row, at["start"], start_row, at["c"], c_row,
             depth],
        )  # fmt: skip
        for name, step in {"a": a_row, "start": start_row, "c": c_row}.items():
            moved = builder.add(at[name], builder.mul(INT64(size), step))
            builder.store(moved, places[name])
        builder.store(builder.sub(left, INT64(size)), places["rows"])
        builder.branch(check)
        builder.position_at_end(after)
    builder.ret_void()
    return function


def _tile_function(module: Any, n_rows: int, n_vectors: int) -> Any:
    """Return a function for a tile of n_rows rows and 16 n_vectors columns."""
    function, is_new = _function(module, f"sad_hpc_tile_{n_rows}_{n_vectors}", 11)
    if not is_new:
        return function
    builder = ir.IRBuilder(function.append_basic_block("before"))
    memory, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth = function.args

    def place(base: Any, row: Any, m: int, n: int) -> Any:
        offset = builder.add(base, builder.mul(INT64(m), row))
        return builder.add(offset, INT64(n * LENGTH))

    sums = [
        [load_vector(builder, memory, place(start, start_row, m, n)) for n in range(n_vectors)]
        for m in range(n_rows)
    ]
    floats = builder.inttoptr(memory, FLOAT.as_pointer())
    first = [
        builder.gep(floats, [builder.add(a, builder.mul(INT64(m), a_row))]) for m in range(n_rows)
    ]
    before, loop = builder.block, function.append_basic_block("depth")
    after = function.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(INT64)
    k.add_incoming(INT64(0), before)
    kept = [[builder.phi(VECTOR_OF_16) for _ in range(n_vectors)] for _ in range(n_rows)]
    row = builder.add(b, builder.mul(k, b_row))
    right = [
        load_vector(builder, memory, builder.add(row, INT64(n * LENGTH))) for n in range(n_vectors)
    ]
    column = builder.mul(k, a_column)
    added = []
    for m in range(n_rows):
        left = broadcast(builder, builder.load(builder.gep(first[m], [column])))
        added.append([multiply_add(builder, left, right[n], kept[m][n]) for n in range(n_vectors)])
    following = builder.add(k, INT64(1))
    k.add_incoming(following, loop)
    for m in range(n_rows):
        for n in range(n_vectors):
            kept[m][n].add_incoming(sums[m][n], before)
            kept[m][n].add_incoming(added[m][n], loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    for m in range(n_rows):
        for n in range(n_vectors):
            store_vector(builder, memory, place(c, c_row, m, n), added[m][n])
    builder.ret_void()
    return function
