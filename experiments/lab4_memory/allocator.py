"""A model of torch's CUDA caching allocator: its peaks for a program, without a GPU.

`torch.cuda.max_memory_allocated` counts blocks, not tensors. A block that is less than 1 MiB too
large is handed out whole, so a tensor of 3 MiB that finds a free block of 4 MiB counts as 4. Which
blocks are free depends on all that the program did before, so that is replayed:
`footprint.watching` feeds every tensor that torch makes and drops to the model.

    allocator = CachingAllocator()
    with watching(allocator.allocate, allocator.free):
        model.to_empty(device="meta")(**batch)
    allocator.peak_bytes

Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2, default settings.
Not handled: several streams, expandable segments, running out of memory, blocks of other libraries.
"""

import bisect
from dataclasses import dataclass

import torch

from experiments.lab4_memory.design import MIB

_UNIT = 512  # every block's size is a multiple
_SMALL = MIB  # at most this: from the pool of small blocks, split whatever is left
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 * MIB, 20 * MIB
_OWN_SEGMENT, _ROUND = 10 * MIB, 2 * MIB  # from this size on a block gets a segment, so rounded


@dataclass(slots=True, eq=False)
class Block:
    """A part of a segment, linked to its neighbours there."""

    size: int  # bytes, as all below
    address: int
    is_small: bool
    requested: int | None = None  # None while it is free
    before: "Block | None" = None
    after: "Block | None" = None

    @property
    def is_free(self) -> bool:
        return self.requested is None


class DeviceAllocator:
    """The peaks of torch's allocator on the CUDA device, by the names of `CachingAllocator`."""

    def reset_peaks(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    @property
    def peak_bytes(self) -> int:
        return self._peak("allocated_bytes")

    @property
    def peak_requested_bytes(self) -> int:
        return self._peak("requested_bytes")

    def _peak(self, figure: str) -> int:
        torch.cuda.synchronize()
        return int(torch.cuda.memory_stats()[f"{figure}.all.peak"])


class CachingAllocator:
    """Segments cut into blocks; the smallest free block that fits is taken, the lowest first.

    Invariants: the blocks of a segment cover it; no two neighbours are free.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}  # address → block
        self.allocated_bytes = self.requested_bytes = 0
        self.peak_bytes = self.peak_requested_bytes = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # (size, address)
        self._end = 0

    def reset_peaks(self) -> None:
        self.peak_bytes, self.peak_requested_bytes = self.allocated_bytes, self.requested_bytes

    def allocate(self, num_bytes: int) -> int:
        """Take a block for so many bytes, at least one; returns its address."""
        size = -(-num_bytes // _UNIT) * _UNIT
        block = self._smallest_free(size) or self._new_segment(size)
        if block.size - size >= (_UNIT if block.is_small else _SMALL + _UNIT):
            self._split(block, size)
        block.requested = num_bytes
        self.allocated_bytes += block.size
        self.requested_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        self.peak_requested_bytes = max(self.peak_requested_bytes, self.requested_bytes)
        return block.address

    def free(self, address: int) -> None:
        """Free the block at an address, and join it with free neighbours."""
        block = self.blocks[address]
        assert block.requested is not None, f"the block at {address} is free"
        self.allocated_bytes -= block.size
        self.requested_bytes -= block.requested
        block.requested = None
        if block.after and block.after.is_free:
            self._take(block.after)
            self._join(block, block.after)
        if block.before and block.before.is_free:
            self._take(block.before)
            block = self._join(block.before, block)
        self._offer(block)

    def empty_cache(self) -> None:
        """Give segments that are free as a whole back to the system."""
        for block in [b for b in self.blocks.values() if b.is_free and not (b.before or b.after)]:
            self._take(block)
            del self.blocks[block.address]

    def _smallest_free(self, size: int) -> Block | None:
        """The smallest free block of that size, taken from its pool; None if there is none."""
        free = self._free[size <= _SMALL]
        i = bisect.bisect_left(free, (size, 0))
        return self.blocks[free.pop(i)[1]] if i < len(free) else None

    def _new_segment(self, size: int) -> Block:
        whole = _LARGE_SEGMENT if size < _OWN_SEGMENT else -(-size // _ROUND) * _ROUND
        block = Block(_SMALL_SEGMENT if size <= _SMALL else whole, self._end, size <= _SMALL)
        self._end += block.size
        self.blocks[block.address] = block
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.address + size, block.is_small)
        rest.before, rest.after = block, block.after
        if rest.after:
            rest.after.before = rest
        block.after, block.size = rest, size
        self.blocks[rest.address] = rest
        self._offer(rest)

    def _join(self, block: Block, after: Block) -> Block:
        """Append the block after this one to it."""
        block.size += after.size
        block.after = after.after
        if block.after:
            block.after.before = block
        del self.blocks[after.address]
        return block

    def _offer(self, block: Block) -> None:
        """Put a block into its pool of free ones."""
        bisect.insort(self._free[block.is_small], (block.size, block.address))

    def _take(self, block: Block) -> None:
        """Take a block out of its pool of free ones."""
        self._free[block.is_small].remove((block.size, block.address))


Allocator = CachingAllocator | DeviceAllocator
