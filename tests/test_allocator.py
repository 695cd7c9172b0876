"""The model of the CUDA caching allocator: its rules by hand, and its invariants."""

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.lab4_memory.allocator import CachingAllocator
from experiments.lab4_memory.design import MIB

SIZES = (1, 512, 513, 100_000, MIB, MIB + 1, 3 * MIB, 4 * MIB, 10 * MIB - 1, 10 * MIB, 25 * MIB)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(SIZES), st.integers(0, 30)), max_size=60))
def test_segments_stay_covered_and_every_request_has_room(steps: list[tuple[int, int]]):
    allocator, held = CachingAllocator(), []
    for size, which in steps:
        if which < len(held):
            allocator.free(held.pop(which))
        elif which == 30:
            allocator.empty_cache()
        else:
            held.append(allocator.allocate(size))
        blocks = allocator.blocks
        assert {a for a, b in blocks.items() if not b.is_free} == set(held)
        assert all(b.requested <= b.size for b in blocks.values() if not b.is_free)
        for block in blocks.values():
            if after := block.after:
                assert after.before is block
                assert block.address + block.size == after.address
                assert not (block.is_free and after.is_free)
        used = [b for b in blocks.values() if not b.is_free]
        assert allocator.allocated_bytes == sum(b.size for b in used) <= allocator.peak_bytes
        free = sorted((b.size, b.address) for b in blocks.values() if b.is_free)
        assert free == sorted([*allocator._free[True], *allocator._free[False]])
