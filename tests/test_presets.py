"""The table of number formats: a row is all that a new one needs."""

import json

from madl.formats.presets import FAMILIES, FORMATS, PRESETS
from tests.conftest import python

ROW = '"MXINT4": MXInt(width=4), '
WITH_ANOTHER = """
import json, sys, types
from pathlib import Path

text = Path("madl/formats/presets.py").read_text()
assert text.count(sys.argv[1]) == 1
module = types.ModuleType("madl.formats.presets")
sys.modules[module.__name__] = module
exec(text.replace(sys.argv[1], sys.argv[1] + sys.argv[2]), module.__dict__)

from click.testing import CliRunner

import cli
from experiments.formats import page as formats
from experiments.lab3_formats import page as mixed, study
from experiments.lab3_formats.placed import PlacedFormat
from madl.logbook.experiment import PROFILES

listed = json.loads(CliRunner().invoke(cli.main, ["formats", "--json"]).stdout)
plan = types.SimpleNamespace(profile=PROFILES["full"], workload={"model": "m", "dataset": "d"})
print(json.dumps({
    "listed": [row["name"] for row in listed["formats"]],
    "cases": [case.get("format") for case in mixed.tuning(plan)],
    "offered": [case.get("offered", "").split() for case in mixed.tuning(plan)],
    "layer": study.layer_format(PlacedFormat("mxint6")).bits,
    "title": formats.variant_name("mxint6"),
}))
"""


def test_names_and_titles_are_unique_and_each_family_has_a_group_and_a_source():
    assert len({preset.title for preset in PRESETS.values()}) == len(PRESETS)
    assert len(PRESETS) == sum(len(family.formats) for family in FAMILIES)
    for family in FAMILIES:
        assert family.group
        assert family.sources.keys() <= family.formats.keys()
        assert all(PRESETS[f.name].source for f in family.formats.values())


def test_a_row_in_the_table_is_a_format_everywhere():
    """A command, a search, its cases, a layer of a model and a page know it; no list names it."""
    assert not [name for name in FORMATS if name.startswith("mxint6")]
    done = python("-c", WITH_ANOTHER, ROW, '"MXINT6": MXInt(width=6), ')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"mxint6", *FORMATS} == set(found["listed"])
    assert "mxint6" in found["cases"]
    searches = [names for names in found["offered"] if "mxint6" in names]
    assert [len(names) for names in searches] == [len(FORMATS) + 1] * 2  # in a budget; as asked
    assert (found["layer"], found["title"]) == (6.25, "MXINT6")
