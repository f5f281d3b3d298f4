"""Vectors of 16 floats in Numba: a type, its operators, and what a kernel does with them.

Numba's own loops leave it to LLVM whether they become vector code; a product of matrices at half of
a core's peak needs its sums in registers, which only explicit vectors say.  LLVM splits them on
machines with shorter ones.  Memory is one block of floats: a kernel gets its address once, and
names what lies in it by offsets.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

LENGTH = 16
"""Floats in a vector."""

_FLOAT, _INT32, _INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR, _INTS = ir.VectorType(_FLOAT, LENGTH), ir.VectorType(_INT32, LENGTH)
_LANES = ir.Constant(_INTS, list(range(LENGTH)))


class VectorType(types.Type):
    """Of 16 floats, or of 16 integers."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)


VECTOR, INTS = VectorType("float32x16"), VectorType("int32x16")
I64, F32 = types.int64, types.float32


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR if kind is VECTOR else _INTS)


def _constant(number: float) -> Any:
    return ir.Constant(_VECTOR, [float(number)] * LENGTH)


def _integers(number: int) -> Any:
    return ir.Constant(_INTS, [number & 0xFFFFFFFF] * LENGTH)


def _broadcast(builder: Any, scalar: Any, kind: Any = _VECTOR) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, scalar, _INT32(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(_INTS, [0] * LENGTH))


def _broadcast_int(builder: Any, scalar: Any) -> Any:
    return _broadcast(builder, builder.trunc(scalar, _INT32), _INTS)


def _call(builder: Any, name: str, *args: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [each.type for each in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _call(builder, "llvm.fma.v16f32", a, b, c)


def _at(builder: Any, memory: Any, offset: Any) -> Any:
    start = builder.inttoptr(memory, _FLOAT.as_pointer())
    return builder.bitcast(builder.gep(start, [offset]), _VECTOR.as_pointer())


def _load(builder: Any, memory: Any, offset: Any) -> Any:
    return builder.load(_at(builder, memory, offset), align=4)


def _store(builder: Any, memory: Any, offset: Any, vector: Any) -> None:
    builder.store(vector, _at(builder, memory, offset), align=4)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _reduce(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Halves that are combined, until one number is left."""
    length = LENGTH
    while length > 1:
        length //= 2
        lower = ir.Constant(ir.VectorType(_INT32, length), list(range(length)))
        upper = ir.Constant(ir.VectorType(_INT32, length), list(range(length, 2 * length)))
        undefined = ir.Constant(vector.type, ir.Undefined)
        vector = combine(
            builder.shuffle_vector(vector, undefined, lower),
            builder.shuffle_vector(vector, undefined, upper),
        )
    return builder.extract_element(vector, _INT32(0))


def _exp(builder: Any, x: Any) -> Any:
    """2^n times a polynomial (Cephes); relative error about 2e-7, for x in [-87, 88]."""
    x = builder.select(builder.fcmp_ordered("<", x, _constant(-87)), _constant(-87), x)
    x = builder.select(builder.fcmp_ordered(">", x, _constant(88)), _constant(88), x)
    n = _call(
        builder, "llvm.nearbyint.v16f32", builder.fmul(x, _constant(1.44269504088896341))
    )
    rest = _fma(builder, n, _constant(-0.693359375), x)
    rest = _fma(builder, n, _constant(2.12194440e-4), rest)
    result = _constant(1.9875691500e-4)
    for coefficient in (
        1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1,
    ):  # fmt: skip
        result = _fma(builder, result, rest, _constant(coefficient))
    exponent = builder.shl(builder.fptosi(n, _INTS), _integers(23))
    return builder.bitcast(builder.add(builder.bitcast(result, _INTS), exponent), _VECTOR)


def _mixed(builder: Any, x: Any) -> Any:
    """A bijection of 32 bits in which every bit depends on all (lowbias32)."""
    x = builder.mul(builder.xor(x, builder.lshr(x, _integers(16))), _integers(0x7FEB352D))
    x = builder.mul(builder.xor(x, builder.lshr(x, _integers(15))), _integers(0x846CA68B))
    return builder.xor(x, builder.lshr(x, _integers(16)))


def _hash(builder: Any, counter: Any, key: Any, other_key: Any) -> Any:
    x = builder.add(_LANES, builder.mul(_broadcast_int(builder, counter), _integers(LENGTH)))
    x = _mixed(builder, builder.xor(x, _broadcast_int(builder, key)))
    return _mixed(builder, builder.add(x, _broadcast_int(builder, other_key)))


def _kept(builder: Any, vector: Any, bits: Any, threshold: Any) -> Any:
    enough = builder.icmp_unsigned(">=", bits, _broadcast_int(builder, threshold))
    return builder.select(enough, vector, _constant(0))


def _operation(result: Any, kinds: tuple[Any, ...], build: Callable[..., Any]) -> Any:
    """An intrinsic of these types, made by a function of LLVM's builder and the arguments."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = build(builder, *args)
        return context.get_dummy_value() if result is types.void else value

    # Numba counts an intrinsic's parameters by its signature.
    names = ", ".join(f"x{number}" for number in range(len(kinds)))
    scope: dict[str, Any] = {"signature": result(*kinds), "generate": generate}
    exec(f"def operation(typing, {names}):\n    return signature, generate", scope)
    return intrinsic(scope["operation"])


load = _operation(VECTOR, (I64, I64), _load)
"""(memory, offset) -> 16 floats"""
store = _operation(types.void, (I64, I64, VECTOR), _store)
"""(memory, offset, vector)"""
splat = _operation(VECTOR, (F32,), _broadcast)
"""A number in every lane."""
larger = _operation(VECTOR, (VECTOR, VECTOR), _larger)
exp = _operation(VECTOR, (VECTOR,), _exp)
total = _operation(
    F32, (VECTOR,), lambda builder, x: _reduce(builder, x, lambda a, b: builder.fadd(a, b))
)
"""The sum of the lanes."""
highest = _operation(
    F32, (VECTOR,), lambda builder, x: _reduce(builder, x, lambda a, b: _larger(builder, a, b))
)
"""The largest lane."""
select_above = _operation(
    VECTOR,
    (VECTOR, F32, VECTOR, F32),
    lambda builder, limits, number, x, other: builder.select(
        builder.fcmp_ordered(">", limits, _broadcast(builder, number)),
        x,
        _broadcast(builder, other),
    ),
)
"""(limits, number, vector, other): the vector in lanes whose limit is above the number."""
random_bits = _operation(INTS, (I64, I64, I64), _hash)
"""(counter, key, other key) -> 16 x 32 bits, a function of these alone."""
keep_low = _operation(
    VECTOR,
    (VECTOR, INTS, I64),
    lambda builder, x, bits, threshold: _kept(
        builder, x, builder.and_(bits, _integers(0xFFFF)), threshold
    ),
)
"""(vector, random bits, threshold): 0 in lanes whose lower 16 bits are below the threshold."""
keep_high = _operation(
    VECTOR,
    (VECTOR, INTS, I64),
    lambda builder, x, bits, threshold: _kept(
        builder, x, builder.lshr(bits, _integers(16)), threshold
    ),
)
"""The same by the upper 16 bits."""


def _arithmetic(symbol: Any, method: str) -> None:
    apply = _operation(
        VECTOR, (VECTOR, VECTOR), lambda builder, a, b: getattr(builder, method)(a, b)
    )

    def implement(a, b):  # type: ignore[no-untyped-def]  # Numba compares signatures
        if a is VECTOR and b is VECTOR:
            return lambda a, b: apply(a, b)
        if a is VECTOR and isinstance(b, types.Float):
            return lambda a, b: apply(a, splat(b))
        if b is VECTOR and isinstance(a, types.Float):
            return lambda a, b: apply(splat(a), b)
        return None

    overload(symbol)(implement)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


@intrinsic
def transpose16(typing, memory, source, source_row, target, target_row):  # type: ignore[no-untyped-def]
    """16 x 16 floats: memory[target + j target_row + i] = memory[source + i source_row + j]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory, source, source_row, target, target_row = args
        rows = [
            _load(builder, memory, builder.add(source, builder.mul(_INT64(i), source_row)))
            for i in range(LENGTH)
        ]
        # A perfect shuffle of rows i and i + 8, four times.
        half = LENGTH // 2
        halves = [
            ir.Constant(_INTS, [x for i in range(first, first + half) for x in (i, i + LENGTH)])
            for first in (0, half)
        ]
        for _ in range(4):
            rows = [
                builder.shuffle_vector(rows[i], rows[i + half], part)
                for i in range(half)
                for part in halves
            ]
        for j, row in enumerate(rows):
            _store(builder, memory, builder.add(target, builder.mul(_INT64(j), target_row)), row)
        return context.get_dummy_value()

    return types.void(*(I64,) * 5), generate


@intrinsic(prefer_literal=True)
def tile(typing, memory, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth, rows, vectors):  # type: ignore[no-untyped-def]  # noqa: E501
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
    kind = ir.FunctionType(ir.VoidType(), [_INT64] * 11)
    function = ir.Function(module, kind, name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("before"))
    memory, a, a_row, a_column, b, b_row, start, start_row, c, c_row, depth = function.args

    def place(base: Any, row: Any, m: int, n: int) -> Any:
        offset = builder.add(base, builder.mul(_INT64(m), row))
        return builder.add(offset, _INT64(n * LENGTH))

    sums = [
        [_load(builder, memory, place(start, start_row, m, n)) for n in range(n_vectors)]
        for m in range(n_rows)
    ]
    floats = builder.inttoptr(memory, _FLOAT.as_pointer())
    first = [
        builder.gep(floats, [builder.add(a, builder.mul(_INT64(m), a_row))]) for m in range(n_rows)
    ]
    before, loop = builder.block, function.append_basic_block("depth")
    after = function.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_INT64)
    k.add_incoming(_INT64(0), before)
    kept = [[builder.phi(_VECTOR) for _ in range(n_vectors)] for _ in range(n_rows)]
    row = builder.add(b, builder.mul(k, b_row))
    right = [_load(builder, memory, builder.add(row, _INT64(n * LENGTH))) for n in range(n_vectors)]
    column = builder.mul(k, a_column)
    added = []
    for m in range(n_rows):
        left = _broadcast(builder, builder.load(builder.gep(first[m], [column])))
        added.append([_fma(builder, left, right[n], kept[m][n]) for n in range(n_vectors)])
    following = builder.add(k, _INT64(1))
    k.add_incoming(following, loop)
    for m in range(n_rows):
        for n in range(n_vectors):
            kept[m][n].add_incoming(sums[m][n], before)
            kept[m][n].add_incoming(added[m][n], loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    for m in range(n_rows):
        for n in range(n_vectors):
            _store(builder, memory, place(c, c_row, m, n), added[m][n])
    builder.ret_void()
    return function
