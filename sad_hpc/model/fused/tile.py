"""A tile of a product of matrices, its sums in registers."""

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
    broadcast,
    load_vector,
    multiply_add,
    store_vector,
)


@intrinsic(prefer_literal=True)
def tile(  # type: ignore[no-untyped-def]
    typing, m, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth, rows, vectors
):
    """A tile of a product, its sums in registers, for literal `rows` and `vectors`:

    c[m, n] = start[m, n] + sum over k < depth of a[m, k] b[k, n],   m < rows, n < 16 vectors

    with a[m, k] at a + m a_row + k a_column, the others by rows; depth >= 1.
    """
    n_rows, n_vectors = rows.literal_value, vectors.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(_tile_function(builder.module, n_rows, n_vectors), args[:11])
        return context.get_dummy_value()

    return types.void(*(I64,) * 11, rows, vectors), generate


def _tile_function(module: Any, n_rows: int, n_vectors: int) -> Any:
    """LLVM's function of a tile: one for all calls, which LLVM would inline a hundred times."""
    name = f"sad_hpc_tile_{n_rows}_{n_vectors}"
    if name in module.globals:
        return module.globals[name]
    kind = ir.FunctionType(ir.VoidType(), [INT64] * 11)
    function = ir.Function(module, kind, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
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
