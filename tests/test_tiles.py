"""4.3c: which thread touches what, counted by hand and as CuTe has it."""

import json

import pytest

from experiments.lab4_tiles import page, study
from experiments.lab4_tiles.design import FEWER, LAB, MAPPINGS, SLOTS, TILE, TRANSPOSED
from madl.errors import MadlError
from tests.synthetic import DATA

STORED = DATA / "lab4_tiles.jsonl"
RECORDS = {
    record["case"]["params"]["group"]: record["values"]
    for record in map(json.loads, STORED.read_text().splitlines())
}


@pytest.mark.parametrize(
    ("addresses", "size", "sectors", "passes"),
    [
        (range(32), 1, 1, 1),  # neighbouring bytes
        (range(0, 128, 4), 4, 4, 1),  # neighbouring words
        (range(0, 256, 8), 4, 8, 2),  # every other word: two threads a bank
        (range(0, 32 * 128, 128), 4, 32, 32),  # all in one bank
        ([0] * 32, 4, 1, 1),  # one word for all
        (range(0, 1024, 32), 1, 32, 8),  # one byte a sector: eight threads in each of four banks
        (range(0, 256, 8), 8, 8, 2),  # neighbouring pairs of words, half a warp at a time
        (range(0, 512, 16), 16, 16, 4),  # fours, a quarter at a time
        (range(16, 48), 1, 2, 1),  # across the edge of a sector
    ],
)
def test_sectors_and_passes_of_known_accesses(addresses, size, sectors, passes):
    access = [(address, size) for address in addresses]
    assert study.sectors(access) == sectors
    assert study.passes(access) == passes


def test_cute_maps_as_the_layouts_read():
    if why := page.unavailable({}):
        pytest.skip(why)
    assert study.run({"group": 32, "elements": 65536}, None) == RECORDS[32]  # type: ignore[arg-type]
    made = study.block_mappings(32, 2048, (0, 0))
    first = {name: [v[5] for v in made[name]["values"] if v[1] == 0][:32] for name in MAPPINGS}
    assert first[LAB] == list(range(32))
    assert first[TRANSPOSED] == list(range(0, 1024, 32))
    assert first[TILE] == list(range(0, 256, 8))
    assert (made[LAB]["filled"], made[FEWER]["filled"]) == (1024, 256)


def test_what_the_page_says_holds_in_the_published_evidence_and_another_mapping_fails():
    for record in RECORDS.values():
        study.check(record, SLOTS)
    right = RECORDS[32]
    for changes in ({"tile m": 16}, {"fetched": 64}, {"passes": 2}):
        with pytest.raises(MadlError, match="at groups of 32"):
            study.check({**right, LAB: {**right[LAB], **changes}}, SLOTS)
