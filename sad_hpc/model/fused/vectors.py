"""Vectors of 16 floats in Numba: a type, its operators, and operations of the kernel.

LLVM does not vectorize all of Numba's loops.  Fast matrix products need sums in registers, which
only explicit vectors guarantee.  LLVM splits the vectors on machines with shorter ones.  Memory is
one block of floats; the kernel has its address and uses offsets.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import config
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, models, overload, register_model

LENGTH = 16
"""Number of floats in a vector."""

FLOAT, INT32, INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR_OF_16, INTS_OF_16 = ir.VectorType(FLOAT, LENGTH), ir.VectorType(INT32, LENGTH)
_LANES = ir.Constant(INTS_OF_16, list(range(LENGTH)))
_EVERY_LANE = ir.Constant(ir.IntType(16), 0xFFFF)

_HOST = config.CPU_FEATURES is None and config.CPU_NAME is None
_FEATURES = get_host_cpu_features() if _HOST else config.CPU_FEATURES or ""

WIDE = "+avx512f" in _FEATURES.split(",")
"""True if Numba compiles for 32 registers of 16 floats, instead of 16 registers of 8."""


class VectorType(types.Type):
    """Numba type of 16 floats or 16 integers."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)


VECTOR, INTS = VectorType("float32x16"), VectorType("int32x16")
I64, F32 = types.int64, types.float32


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR_OF_16 if kind is VECTOR else INTS_OF_16)


def _constant(number: float) -> Any:
    return ir.Constant(VECTOR_OF_16, [float(number)] * LENGTH)


def _integers(number: int) -> Any:
    return ir.Constant(INTS_OF_16, [number & 0xFFFFFFFF] * LENGTH)


def broadcast(builder: Any, scalar: Any, kind: Any = VECTOR_OF_16) -> Any:
    """Return LLVM's value of a scalar in every lane."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, scalar, INT32(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(INTS_OF_16, [0] * LENGTH))


def _broadcast_int(builder: Any, scalar: Any) -> Any:
    return broadcast(builder, builder.trunc(scalar, INT32), INTS_OF_16)


def _call(builder: Any, name: str, *args: Any) -> Any:
    kind = ir.FunctionType(VECTOR_OF_16, [each.type for each in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return LLVM's value of a b + c, rounded once."""
    return _call(builder, "llvm.fma.v16f32", a, b, c)


def _at(builder: Any, memory: Any, offset: Any) -> Any:
    start = builder.inttoptr(memory, FLOAT.as_pointer())
    return builder.bitcast(builder.gep(start, [offset]), VECTOR_OF_16.as_pointer())


def load_vector(builder: Any, memory: Any, offset: Any) -> Any:
    """Return LLVM's value of the 16 floats at an offset."""
    return builder.load(_at(builder, memory, offset), align=4)


def store_vector(builder: Any, memory: Any, offset: Any, vector: Any) -> None:
    """Write 16 floats at an offset."""
    builder.store(vector, _at(builder, memory, offset), align=4)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _reduce(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine the halves of a vector repeatedly to one number."""
    length = LENGTH
    while length > 1:
        length //= 2
        lower = ir.Constant(ir.VectorType(INT32, length), list(range(length)))
        upper = ir.Constant(ir.VectorType(INT32, length), list(range(length, 2 * length)))
        undefined = ir.Constant(vector.type, ir.Undefined)
        vector = combine(
            builder.shuffle_vector(vector, undefined, lower),
            builder.shuffle_vector(vector, undefined, upper),
        )
    return builder.extract_element(vector, INT32(0))


def _exp2(builder: Any, x: Any) -> Any:
    """Return 2^x by a polynomial (Cephes) times a power of 2, with a relative error of 2e-7."""
    whole = _call(builder, "llvm.nearbyint.v16f32", x)
    rest = builder.fsub(x, whole)
    result = _constant(1.535336188319500e-4)
    for coefficient in (
        1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1,
        6.931472028550421e-1, 1,
    ):  # fmt: skip
        result = multiply_add(builder, result, rest, _constant(coefficient))
    if WIDE:  # a single instruction, with 0 or infinity for powers out of range
        name = "llvm.x86.avx512.mask.scalef.ps.512"
        return _call(builder, name, result, whole, result, _EVERY_LANE, INT32(4))
    whole = _larger(builder, _smaller(builder, whole, _constant(127)), _constant(-125))
    exponent = builder.shl(builder.fptosi(whole, INTS_OF_16), _integers(23))
    bits = builder.add(builder.bitcast(result, INTS_OF_16), exponent)
    return builder.bitcast(bits, VECTOR_OF_16)


def _reciprocal(builder: Any, x: Any) -> Any:
    """Return 1 / x of a finite number, with WIDE by an estimate and a Newton step."""
    if not WIDE:
        return builder.fdiv(_constant(1), x)
    estimate = _call(builder, "llvm.x86.avx512.rcp14.ps.512", x, x, _EVERY_LANE)
    error = multiply_add(builder, builder.fneg(x), estimate, _constant(1))
    return multiply_add(builder, error, estimate, estimate)


def _mixed(builder: Any, x: Any) -> Any:
    """Apply a bijection of 32 bits in which every bit depends on all bits (lowbias32)."""
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
    """Make an intrinsic of these types from a function of LLVM's builder and the arguments."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = build(builder, *args)
        return context.get_dummy_value() if result is types.void else value

    # Numba derives the number of an intrinsic's parameters from its signature.
    names = ", ".join(f"x{number}" for number in range(len(kinds)))
    scope: dict[str, Any] = {"signature": result(*kinds), "generate": generate}
    exec(f"def operation(typing, {names}):\n    return signature, generate", scope)
    return intrinsic(scope["operation"])


load = _operation(VECTOR, (I64, I64), load_vector)
"""(memory, offset) -> 16 floats"""
store = _operation(types.void, (I64, I64, VECTOR), store_vector)
"""(memory, offset, vector)"""
splat = _operation(VECTOR, (F32,), broadcast)
"""(number): a vector with the number in every lane."""
larger = _operation(VECTOR, (VECTOR, VECTOR), _larger)
smaller = _operation(VECTOR, (VECTOR, VECTOR), _smaller)
exp2 = _operation(VECTOR, (VECTOR,), _exp2)
reciprocal = _operation(VECTOR, (VECTOR,), _reciprocal)
total = _operation(
    F32, (VECTOR,), lambda builder, x: _reduce(builder, x, lambda a, b: builder.fadd(a, b))
)
"""(vector): the sum of the lanes."""
highest = _operation(
    F32, (VECTOR,), lambda builder, x: _reduce(builder, x, lambda a, b: _larger(builder, a, b))
)
"""(vector): the largest lane."""
select_above = _operation(
    VECTOR,
    (VECTOR, F32, VECTOR, F32),
    lambda builder, limits, number, x, other: builder.select(
        builder.fcmp_ordered(">", limits, broadcast(builder, number)),
        x,
        broadcast(builder, other),
    ),
)
"""(limits, number, vector, other): the vector in lanes whose limit is above the number."""
random_bits = _operation(INTS, (I64, I64, I64), _hash)
"""(counter, key, other key) -> 16 x 32 random bits, a function of the arguments only."""
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
"""(vector, random bits, threshold): 0 in lanes whose upper 16 bits are below the threshold."""


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
    """Transpose 16 x 16 floats; see `attention.transposed`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory, source, source_row, target, target_row = args
        rows = [
            load_vector(builder, memory, builder.add(source, builder.mul(INT64(i), source_row)))
            for i in range(LENGTH)
        ]
        # A perfect shuffle of rows i and i + 8, four times.
        half = LENGTH // 2
        halves = [
            ir.Constant(
                INTS_OF_16, [x for i in range(first, first + half) for x in (i, i + LENGTH)]
            )
            for first in (0, half)
        ]
        for _ in range(4):
            rows = [
                builder.shuffle_vector(rows[i], rows[i + half], part)
                for i in range(half)
                for part in halves
            ]
        for j, row in enumerate(rows):
            store_vector(
                builder, memory, builder.add(target, builder.mul(INT64(j), target_row)), row
            )
        return context.get_dummy_value()

    return types.void(*(I64,) * 5), generate
