"""The times of the last published run of `benchmarks/formats.py`, as tables of a page."""

from madl.logbook import benchmarks
from madl.logbook.records import Pending, Records, Row
from madl.training.families import short

HOW = {"": "here", "plain torch (no compiler)": "plain torch", "torch.compile of that": "compiled"}
WORK = {"an activation, in cache": "in cache", "memory": "in memory", "new memory": "in new memory"}


def times(*, of: str, first: str, peers: bool = False) -> list[Row]:
    """A row a variant, a column for each work and way to do it, of times that are `× of`."""
    made: dict[str, dict[str, str]] = {}
    for (title, _), arms in benchmarks.arms("formats").items():
        said: str = title.partition(" (")[2].rstrip(")") or title.partition(",")[0]
        work = WORK.get(said, said)
        for variant, arm in arms.items():
            if of not in arms or variant == of or variant.startswith("peer of") is not peers:
                continue
            name, _, how = (variant, "", "") if peers else variant.partition(", ")
            column = work if peers else f"{work}, {HOW.get(how, how)}"
            cells = made.setdefault(name, {first: short(name.removeprefix("peer of "))})
            cells[column] = f"{arm / arms[of]:i}"
    if not made:
        raise Pending("a published run of the benchmark formats with its samples")
    columns = {column: "–" for cells in made.values() for column in cells}
    return [{**columns, **cells} for cells in made.values()]


def tensor_times(r: Records) -> list[Row]:
    return times(of="copy", first="format")


def peer_times(r: Records) -> list[Row]:
    return times(of="copy", first="peer", peers=True)


def model_times(r: Records) -> list[Row]:
    return times(of="float32", first="format")


def benchmark_run(r: Records) -> list[Row]:
    """Where and when, and of what sizes."""
    sizes = dict.fromkeys(work for work, _ in benchmarks.arms("formats"))
    return [*benchmarks.run_table("formats"), {"": "Work", " ": "; ".join(sizes)}]
