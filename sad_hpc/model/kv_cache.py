"""Cache of the keys and values of a context, which is encoded once for all queries."""

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """Keys and values of the encoded transitions, for each transformer block.

    Args:
        capacity: largest number of transitions of repeated `append`s; 0: a single `append`.
    """

    def __init__(self, capacity: int = 0) -> None:
        self.length, self._capacity = 0, capacity
        self._parts: dict[int, tuple[Tensor, Tensor]] = {}

    def append(self, block: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, H, l, D) of a block, and return all of them (B, H, t, D)."""
        if not self._capacity:
            assert block not in self._parts, "a cache without capacity takes a single append"
            self._parts[block] = key, value
            return key, value
        if block not in self._parts:
            shape = (*key.shape[:2], self._capacity, key.shape[3])
            self._parts[block] = key.new_empty(shape), value.new_empty(shape)
        last = self.length + key.shape[2]
        keys, values = self._parts[block]
        keys[:, :, self.length : last] = key
        values[:, :, self.length : last] = value
        return keys[:, :, :last], values[:, :, :last]

    def read(self, block: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values (B, H, t, D) of a block."""
        keys, values = self._parts[block]
        return keys[:, :, : self.length], values[:, :, : self.length]

    def at(self, rows: Tensor) -> "KVCache":
        """Return a cache with copies of the contexts `rows` (m,)."""
        copies = KVCache(self._capacity)
        copies.length = self.length
        for block, (keys, values) in self._parts.items():
            copies._parts[block] = keys[rows.to(keys.device)], values[rows.to(values.device)]
        return copies

    @classmethod
    def joined(cls, caches: Sequence["KVCache"]) -> "KVCache":
        """Return one cache with the contexts of all, which have the same length."""
        if len(caches) == 1:
            return caches[0]
        every = KVCache(caches[0]._capacity)
        every.length = caches[0].length
        for block in caches[0]._parts:
            keys, values = zip(*(each._parts[block] for each in caches), strict=True)
            every._parts[block] = torch.cat(keys), torch.cat(values)
        return every
