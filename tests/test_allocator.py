"""The model of the CUDA caching allocator: its rules by hand, its invariants, and against a GPU."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from madl.machine.allocator import MIB, CachingAllocator

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


@pytest.mark.cuda
def test_the_model_agrees_with_the_allocator():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    draw, model, held = random.Random(0), CachingAllocator(), []
    for _ in range(2000):
        if held and draw.random() < 0.5:
            address, tensor = held.pop(draw.randrange(len(held)))
            model.free(address)
            del tensor
        else:
            size = draw.choice((*SIZES, draw.randrange(1, 30 * MIB)))
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
            model._end = tensor.data_ptr()  # where a new segment begins is the driver's choice
            held.append((model.allocate(size), tensor))
            assert held[-1][0] == tensor.data_ptr()
        assert torch.cuda.memory_allocated() - before == model.allocated_bytes
