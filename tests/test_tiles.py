"""4.3c: which thread touches what, counted by hand and as CuTe has it."""

import json
from pathlib import Path

import pytest

from experiments.lab4_tiles import page, study
from experiments.lab4_tiles.study import FEWER, LAB, SLOTS, TILE, TRANSPOSED, WARP, place
from madl.errors import MadlError

STORED = Path(__file__).parents[1] / "docs" / "data" / "lab4_tiles.jsonl"
RECORDS = {
    record["case"]["params"]["group"]: record["values"]
    for record in map(json.loads, STORED.read_text().splitlines())
}


@pytest.mark.parametrize(
    ("addresses", "size", "sectors", "passes"),
    [
        (range(32), 1, 1, 1),  # neighbouring bytes
        (range(0, 128, 4), 4, 4, 1),  # neighbouring words
        (range(0, 256, 8), 4, 8, 2),  # every other word: two lanes a bank
        (range(0, 32 * 128, 128), 4, 32, 32),  # all in one bank
        ([0] * 32, 4, 1, 1),  # one word for all
        (range(0, 1024, 32), 1, 32, 8),  # one byte a sector: eight lanes in each of four banks
        (range(0, 256, 8), 8, 8, 2),  # neighbouring pairs of words, half a warp at a time
        (range(0, 512, 16), 16, 16, 4),  # fours, a quarter at a time
        (range(16, 48), 1, 2, 1),  # across the edge of a sector
    ],
)
def test_sectors_and_passes_of_known_accesses(addresses, size, sectors, passes):
    request = [(address, size) for address in addresses]
    assert study.sectors(request) == sectors
    assert study.passes(request) == passes


def test_requests_are_one_vector_of_each_thread_of_a_warp():
    values = [(t, v, 8 * t + v, 0, 1, 8 * t + v, -1) for t in range(64) for v in range(8)]
    requests = study.by_request(values, 8)
    assert [len(request) for request in requests] == [32, 32]
    assert [request[0][5] for request in requests] == [0, 256]


def test_cute_maps_as_the_layouts_read():
    if why := page.unavailable({}):
        pytest.skip(why)
    made = page.run({"group": 32, "elements": 65536}, None)  # type: ignore[arg-type]
    assert made == RECORDS[32]
    other = next(one for one in made["confirmed"] if one["block"] == [0, 1])
    assert (other["warp"], other["threads"]) == (31, 1024)
    assert other["warp_bytes"] == list(range(32 * 63, 32 * 64))  # the last group of that block
    assert other["warp_slots"] == list(range(32 * 31, 32 * 32))
    found = {kernel["kernel"]: kernel for kernel in made["kernels"]}
    lab, transposed = found[LAB], found[TRANSPOSED]
    assert lab["layout"] == "(32,32):(1,32)"
    assert lab["first_warp"] == list(range(32))
    assert lab["warps"][5] == [0, 31, 5, 5, 32]  # warp 5 is group 5 of the tile
    assert transposed["first_warp"] == list(range(0, 1024, 32))
    assert (lab["filled"], found[FEWER]["filled"]) == (1024, 256)
    assert found["tile"]["first_warp"] == found["flat"]["first_warp"] == list(range(0, 256, 8))


def mappings():
    for group, values in RECORDS.items():
        for kernel in values["kernels"]:
            if kernel["kernel"] in (LAB, TRANSPOSED, TILE):
                m, k = kernel["tile"]
                row = {**kernel, "tile m": m, "tile k": k, "group": group}
                yield pytest.param(row, id=f"{kernel['kernel']}, groups of {group}")


@pytest.mark.parametrize("row", list(mappings()))
def test_a_place_follows_from_the_layout_as_cute_has_it(row):
    first = [place(row, thread) for thread in range(WARP)]
    assert [one.byte for one in first] == row["first_warp"]
    assert [one.slot for one in first] == row["first_warp_shared"]
    for warp, box in enumerate(row["warps"]):
        held = [place(row, WARP * warp + lane) for lane in range(WARP)]
        down = [one.m + i for one in held for i in (0, row["bytes"] - 1)]
        along = [one.k for one in held]
        assert box[:4] == [min(down), max(down), min(along), max(along)]


def a_mapping(**changes):
    """Four threads down a group of eight that is cut in two, two groups a block, CuTe's values."""
    values = [(t, 0, t % 4, t // 4, 1, 4 + t % 4 + 8 * (2 + t // 4), t) for t in range(8)]
    return {
        **{"kernel": "lab", "layout": "(4,2):(1,4)", "tile": [4, 2], "bytes": 1, "threads": 8},
        **{"values": values, **changes},
    }


def test_a_place_in_another_block_is_confirmed_or_refused():
    made = study.confirmed(a_mapping(), 8, (1, 1))
    assert (made["threads"], made["warp"], made["warp_bytes"][0]) == (8, 0, 4 + 16)
    with pytest.raises(MadlError, match=r"thread 1 of block \(1, 1\) of 'lab' is at byte 21"):
        study.confirmed(a_mapping(layout="(4,2):(2,1)"), 8, (1, 1))


def test_the_rule_of_tiles():
    assert [study.tile_of(group) for group in (8, 128, 512)] == [(8, 128), (128, 8), (128, 8)]


@pytest.mark.parametrize("group", RECORDS)
def test_what_the_page_says_holds_in_the_published_evidence(group):
    study.check(RECORDS[group]["kernels"], group)


@pytest.mark.parametrize(
    "changes",
    [
        {"tile": [16, 64]},
        {"filled": SLOTS - 1},
        {"load_sectors": [2]},
        {"passes": [2]},
    ],
)
def test_a_mapping_that_is_not_what_the_page_says_fails_the_case(changes):
    right = {"tile": [32, 32], "filled": SLOTS, "load_sectors": [1], "load_bytes": [32]}
    kernel = {"kernel": LAB, "bytes": 1, "passes": [1], **right}
    study.check([kernel], 32)
    with pytest.raises(MadlError, match="at groups of 32"):
        study.check([{**kernel, **changes}], 32)
