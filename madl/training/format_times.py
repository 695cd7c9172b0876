"""The times of the last published run of `benchmarks/formats.py`, as tables of a page."""

from madl.logbook import benchmarks
from madl.logbook.records import Row
from madl.logbook.stats import number
from madl.training.families import short

HOW = {"": "here", "plain torch (no compiler)": "plain torch", "torch.compile of that": "compiled"}
WORK = {"an activation, in cache": "in cache", "memory": "in memory"}


def times(*, of: str, first: str, peers: bool = False) -> list[Row]:
    """A row a variant, a column for each work and way to do it, of times that are `× of`."""
    made: dict[str, dict[str, str]] = {}
    for row in benchmarks.rows("formats"):
        variant = row["variant"]
        is_peer = variant.startswith("peer of")
        if not row["time"].endswith(f"× {of}") or variant == of or is_peer is not peers:
            continue
        name, _, how = (variant, "", "") if peers else variant.partition(", ")
        said: str = row["work"].partition(" (")[2].rstrip(")") or row["work"].partition(",")[0]
        work = WORK.get(said, said)
        column = work if peers else f"{work}, {HOW.get(how, how)}"
        cells = made.setdefault(name, {first: short(name.removeprefix("peer of "))})
        cells[column] = f"{number(float(row['time'].partition(' ')[0]))} ×"
    columns = {column: "–" for cells in made.values() for column in cells}
    return [{**columns, **cells} for cells in made.values()]
