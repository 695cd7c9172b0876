"""4.3b and 4.3c: what is counted, on cases small enough to count by hand."""

import re

import pytest
import torch

from experiments.lab4_decode import page as lab4_decode
from experiments.lab4_decode import study as decode_study
from experiments.lab4_tiles import accesses, places, tile_facts
from experiments.lab4_tiles import page as lab4_tiles
from experiments.lab4_tiles.tile_panels import tile_alt
from madl.errors import MadlError
from madl.logbook.records import Case, Records
from tests.conftest import a_record


@pytest.fixture(scope="module")
def decoded():
    return lab4_decode.run({"codes": 65536}, None)  # type: ignore[arg-type]


def test_the_loop_is_wrong_exactly_where_reading_it_says(decoded):
    """Exponent 0 doubles each value but zero; -128 gives zero; ±64 under 255 gives infinities."""
    assert decoded["wrong"] == {"all": 511, "lowest": 255, "zero": 254, "nan": 2}


def test_every_code_has_its_leading_one_or_not(decoded):
    scales = 254  # 1 … 254
    assert (decoded["with_one"], decoded["without_one"]) == (2 * 64 * scales, 127 * scales)
    half = decoded["steps"][128 + 32]
    assert (half["out"], half["bias"], half["result"]) == (1.5, 1.0, 0.5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("definition", "the codec of this repository differs on 65,024 codes, the first mantissa"),
        ("as_bf16", "`out` is off with bit six set on 32,512 codes, the first mantissa -127"),
    ],
)
def test_a_case_that_breaks_what_the_page_says_fails_in_a_line(monkeypatch, name, said):
    made = getattr(decode_study, name)
    monkeypatch.setattr(decode_study, name, lambda *of: made(*of) * 2)
    with pytest.raises(MadlError, match=re.escape(said)):
        decode_study.study()


def test_the_page_of_the_loop_shows_what_was_counted(decoded):
    case = Case(experiment="lab4_decode", params={"codes": 65536}, version=3)
    records = Records([a_record(case=case, values=decoded)])
    assert len(lab4_decode.one(records).rows) == 256
    wrong = {row["where"]: row for row in lab4_decode.wrong(records)}
    assert [row["wrong codes"] for row in wrong.values()] == [255, 254, 2]
    shown = {
        where: (row["such as"], row["loop"], row["definition"]) for where, row in wrong.items()
    }
    assert shown == {
        "mantissa −128": ("scale 127", "0", "−2"),
        "scale 0": ("mantissa 1", "2⁻¹³²", "2⁻¹³³"),
        "scale 255": ("mantissa 64", "∞", "NaN"),
    }
    causes = {row["where"] for row in lab4_decode.loop(records)}
    assert causes == {"", *wrong}


def test_a_difference_is_seen():
    """The comparison behind all counts: NaN equals NaN, and −2^128 is an infinity."""
    a = torch.tensor([1.0, float("nan"), -float("inf"), 0.0, 2.0], dtype=torch.float64)
    b = torch.tensor([1.0, float("nan"), -(2.0**128), -1.0, float("nan")], dtype=torch.float64)
    assert decode_study.differs(a, b).tolist() == [False, False, False, True, True]


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
    assert accesses.sectors(request) == sectors
    assert accesses.passes(request) == passes


def test_requests_are_one_vector_of_each_thread_of_a_warp():
    values = [(t, v, 8 * t + v, 0, 1, 8 * t + v, -1) for t in range(64) for v in range(8)]
    requests = accesses.by_request(values, 8)
    assert [len(request) for request in requests] == [32, 32]
    assert [request[0][5] for request in requests] == [0, 256]


def test_cute_maps_as_the_layouts_read():
    if why := lab4_tiles.unavailable({}):
        pytest.skip(why)
    made = lab4_tiles.run({"group": 32, "elements": 65536}, None)  # type: ignore[arg-type]
    kernels = made["kernels"]
    other = next(one for one in made["confirmed"] if one["block"] == [0, 1])
    assert (other["warp"], other["threads"]) == (31, 1024)
    assert other["warp_bytes"] == list(range(32 * 63, 32 * 64))  # the last group of that block
    assert other["warp_slots"] == list(range(32 * 31, 32 * 32))
    found = {kernel["kernel"]: kernel for kernel in kernels}
    lab, other, fewer = (found[name] for name in ("lab", "lab, transposed", "lab, fewer threads"))
    assert lab["layout"] == "(32,32):(1,32)"
    assert lab["first_warp"] == list(range(32))
    assert lab["warps"][5] == [0, 31, 5, 5, 32]  # warp 5 is group 5 of the tile
    assert other["first_warp"] == list(range(0, 1024, 32))
    assert (lab["filled"], fewer["filled"]) == (1024, 256)
    assert found["tile"]["first_warp"] == found["flat"]["first_warp"] == list(range(0, 256, 8))


def a_mapping(**changes):
    """Four threads down a group of eight that is cut in two, two groups a block, CuTe's values."""
    values = [(t, 0, t % 4, t // 4, 1, 4 + t % 4 + 8 * (2 + t // 4), t) for t in range(8)]
    return {
        **{"kernel": "lab", "layout": "(4,2):(1,4)", "tile": [4, 2], "bytes": 1, "threads": 8},
        **{"values": values, **changes},
    }


def test_a_place_in_another_block_is_confirmed_or_refused():
    assert places.last_tile(8, (4, 2)) == (1, 1)
    made = places.confirmed(a_mapping(), 8, (1, 1))
    assert (made["threads"], made["warp"], made["warp_bytes"][0]) == (8, 0, 4 + 16)
    with pytest.raises(MadlError, match=r"thread 1 of block \(1, 1\) of 'lab' is at byte 21"):
        places.confirmed(a_mapping(layout="(4,2):(2,1)"), 8, (1, 1))


def tiles(groups=(32, 256)):
    """Records of these group sizes as the page reads them, with tiles by the rule."""
    made = []
    for group in groups:
        m, k = tile_facts.tile_of(group)
        kernel = {"kernel": tile_facts.LAB, "tile": [m, k]}
        case = Case(experiment="lab4_tiles", params={"group": group, "elements": 65536}, version=3)
        made.append(a_record(case=case, values={"kernels": [kernel], "confirmed": []}))
    return Records(made)


def test_the_rule_of_tiles_is_held_against_every_group_size():
    assert [tile_facts.tile_of(group) for group in (8, 128, 512)] == [[8, 128], [128, 8], [128, 8]]
    said = tile_facts.tiles_cover(tiles()).text
    assert "(at 2 of 2 group sizes)" in said
    assert said.endswith("so 32 whole groups; groups of 256 are cut into several blocks")
    records = tiles()
    records[1].values["kernels"][0]["tile"] = [256, 4]
    assert "(at 1 of 2 group sizes)" in tile_facts.tiles_cover(records).text


def test_a_grid_ends_below_the_next_square():
    said = tile_facts.grid_ends(tiles()).text
    assert said.endswith(
        "ends at 67,107,840 mantissas, and a weight of 8,192 × 8,192 has 67,108,864. Its wrapper "
        "in Python therefore splits longer tensors into several launches"
    )


def test_an_alt_text_says_a_box_once():
    rows = [
        {"kernel": "a", "group": group, "warp": 0, "m from": 0, "m to": 7, "k from": 0, "k to": k}
        for group, k in ((8, 3), (16, 0), (32, 0))
    ]
    assert tile_alt(rows) == (
        "The first warp of a holds, at groups of 8: elements 0 to 7 of groups 0 to 3; at groups of "
        "16, 32: elements 0 to 7 of group 0"
    )


def mapped(*kernels):
    """One group size, with the kernels of a mapping as `accesses` describes them."""
    case = Case(experiment="lab4_tiles", params={"group": 32, "elements": 65536}, version=3)
    return Records([a_record(case=case, values={"kernels": list(kernels), "confirmed": []})])


@pytest.mark.parametrize(("used", "said"), [(32, "All 2 loads"), (16, "1 of 2 loads")])
def test_loads_that_use_their_sectors_whole_are_counted(used, said):
    kernel = {"load_sectors": [1, 1], "load_bytes": [32, used], "requests": 2}
    records = mapped({"kernel": tile_facts.LAB, **kernel})
    assert f"{said} of a warp use every byte" in tile_facts.loads_are_coalesced(records).text


@pytest.mark.parametrize(
    ("passes", "said"),
    [([1, 1], "has bank conflicts: none of 3 "), ([1, 2], "has bank conflicts: 1 of 3 ")],
)
def test_a_conflict_is_a_pass_more_than_the_bytes_need(passes, said):
    vectors = {"kernel": tile_facts.TILE, "bytes": 8, "passes": [2]}
    records = mapped({"kernel": tile_facts.LAB, "bytes": 1, "passes": passes}, vectors)
    assert said in tile_facts.conflicts_are_none(records).text


def test_loads_of_every_mapping_are_counted_for_as_many_mantissas():
    def kernel(name, elements, requests, size):
        return {"kernel": name, "elements": elements, "requests": requests, "bytes": size}

    sizes = (tile_facts.LAB, 8, 8, 1), (tile_facts.TILE, 16, 2, 8), (tile_facts.FLAT, 32, 4, 8)
    said = tile_facts.vectors_need_fewer_loads(mapped(*(kernel(*one) for one in sizes))).text
    assert "32 mantissas take 32 loads" in said
    assert said.count("takes 4") == 2
