"""The benchmark of MXINT8 beside the page of 4.3a: its peers, and where the two differ.

The benchmark is one run by hand, of other libraries too; the page's own times are of several fresh
processes. Where both time the same pair, `disagreements` says which came out the other way.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from madl.execution.linear_times import (
    BATCHES,
    BF16,
    DYNAMIC,
    FP32,
    MXINT8,
    ONEDNN,
    PREPACKED,
    layer_case,
    layer_cases,
    model_times,
    num_rows,
    shape,
    times,
)
from madl.logbook import benchmarks, stats
from madl.logbook.arms import TimedArm
from madl.logbook.claims import Fact, compare
from madl.logbook.records import Pending, Record, Records, Row
from madl.logbook.stats import counted, number

NAME = "mxint8"
IN_BENCHMARK = {
    FP32: "torch FP32",
    BF16: "torch BF16",
    DYNAMIC: "torch dynamic INT8",
    DYNAMIC + ONEDNN: "torch dynamic INT8, oneDNN",
}
RENAMED = {"float32": IN_BENCHMARK[FP32]}  # as runs of the whole classifier once called it
WIDE = tuple(IN_BENCHMARK[v] for v in (FP32, BF16))  # peers of more than eight bits
Medians = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A rival of MXINT8 that the page and the benchmark both timed on the same work."""

    where: str
    ours: TimedArm
    rival: TimedArm
    in_benchmark: float  # how many times as fast MXINT8 was in the benchmark

    @property
    def here(self) -> float:
        return self.rival.median_s / self.ours.median_s

    @property
    def p(self) -> float:
        """Against no difference here; 1 where the machine was not quiet."""
        return min(compare(self.ours, self.rival).p_values())

    @property
    def is_opposite(self) -> bool:
        return (self.here > 1) != (self.in_benchmark > 1)

    def __str__(self) -> str:
        return (
            f"{self.rival.label}, {self.where} ({number(self.here)} × in the page's records, "
            f"{number(self.in_benchmark)} × in the benchmark)"
        )


def layer_peers() -> list[Row]:
    """MXINT8's time in a layer, and how many times as fast it is as each peer."""
    return [
        {"layer": work, "rows": rows, **_beside(medians)}
        for (work, rows), medians in _medians("linear").items()
    ]


def model_peers() -> list[Row]:
    """The same of a whole classifier."""
    every = sorted(_medians("model").items(), key=lambda item: item[0][1])
    return [{"sentences": sentences, **_beside(medians)} for (_, sentences), medians in every]


def code_rows() -> list[Row]:
    """Which of this project's code the run timed."""
    found = benchmarks.rows(NAME, part="code") or [{"commit": "not kept", "kernel": "not kept"}]
    return [
        {"": "Commit", " ": found[0]["commit"]},
        {"": "Kernel", " ": found[0]["kernel"]},
    ]


def nearest_peers(r: Records) -> Fact:
    """The fastest other eight-bit product of the benchmark, with the fewest and the most rows."""
    record = layer_case(r)
    every = {n: us for (work, n), us in _medians("linear").items() if work == _work(record)}
    if not every:
        raise Pending(f"the benchmark {NAME} of {_work(record)}")
    found: list[str] = []
    for rows in (min(every), max(every)):
        peers = {one: us for one, us in every[rows].items() if one not in (MXINT8, *WIDE)}
        nearest = min(peers, key=peers.__getitem__)
        ratio = number(peers[nearest] / every[rows][MXINT8])
        found.append(f"with {counted(rows, 'row')} {nearest} (MXINT8 is {ratio} × as fast as it)")
    return Fact(
        text=f"The fastest of the other eight-bit products in {_the_benchmark(record)}, in "
        f"{shape(record)}: {', '.join(found)}",
        of="medians of one run",
    )


def disagreements(r: Records) -> Fact:
    """Which comparisons that the page's records decide come out the other way in the benchmark."""
    pairs = list(_pairs(r))
    decided = _decided(pairs)
    if not decided:
        raise Pending(f"a comparison of the benchmark {NAME} that these records decide")
    other = [str(pair) for pair in decided if pair.is_opposite]
    found = f"in {len(other)} of them: {'; '.join(other)}" if other else "in none of them"
    return Fact(
        text=f"Both {_the_benchmark(layer_case(r))} and the page's own records compare MXINT8 with "
        f"torch's FP32, BF16 and INT8 as they come. The records decide {len(decided)} of the "
        f"{len(pairs)} comparisons, corrected for one another; in the benchmark MXINT8 is on the "
        f"other side of 1 × {found}",
        of="medians of one run of the benchmark, against tests between processes",
    )


def prepacked_bf16(r: Records) -> Fact:
    """What the benchmark's BF16 does without."""
    layers = layer_cases(r)
    every = [times(record, rows) for record in layers for rows in num_rows(record)]
    found = [t[BF16].median_s / t[BF16 + PREPACKED].median_s for t in every]
    return Fact(
        text="In the page's own records, over both layers and every number of rows, BF16 is "
        f"{number(min(found))} to {number(max(found))} × as fast with prepacked weights as with "
        "weights as torch keeps them",
        of=f"medians of {len(found)} comparisons",
    )


def _the_benchmark(record: Record) -> str:
    """Its name, and whose it is where another machine than the record's ran it."""
    machine = benchmarks.machine(NAME)  # with its number of threads, where it was kept
    is_other = not machine.startswith(record.run.host)
    return "the benchmark" + (f" of another machine ({machine})" if is_other else "")


def _decided(pairs: Sequence[Pair]) -> list[Pair]:
    """Those of which the page's records say which is faster, all of them one family."""
    adjusted = stats.holm({str(pair): pair.p for pair in pairs})
    return [pair for pair in pairs if adjusted[str(pair)] <= stats.ALPHA]


def _pairs(r: Records) -> Iterator[Pair]:
    """Raises: Pending where a record or the benchmark is not there."""
    layers, models = _medians("linear"), _medians("model")
    for record in layer_cases(r):
        for rows in num_rows(record):
            where = f"{_work(record)} with {counted(rows, 'row')}"
            yield from _of(times(record, rows), layers.get((_work(record), rows), {}), where)
    by_batch = {batch: medians for (_, batch), medians in models.items()}
    for batch in map(int, BATCHES.split()):
        where = f"whole classifier, batch of {batch}"
        yield from _of(model_times(r, batch), by_batch.get(batch, {}), where)


def _work(record: Record) -> str:
    """A layer as the benchmark names it."""
    return f"{record.case.params['in']} → {record.case.params['out']}"


def _of(t: Mapping[str, TimedArm], medians: Medians, where: str) -> Iterator[Pair]:
    for variant, name in IN_BENCHMARK.items():
        if name in medians and variant in t:
            ratio = medians[name] / medians[MXINT8]
            yield Pair(where=where, ours=t[MXINT8], rival=t[variant], in_benchmark=ratio)


def _beside(medians: Medians) -> Row:
    ours = medians[MXINT8]
    over = {name: f"{number(us / ours)} ×" for name, us in medians.items() if name != MXINT8}
    return {f"{MXINT8}, µs": number(ours), **over}


def _medians(part: str) -> Mapping[tuple[str, int], Medians]:
    """Raises: Pending: it was never published with its samples."""
    found = {
        work: {RENAMED.get(name, name): _median_us(arm) for name, arm in arms.items()}
        for work, arms in benchmarks.arms(NAME, part=part).items()
    }
    if not found:
        raise Pending(f"a published run of the benchmark {NAME} with its samples")
    return found


def _median_us(arm: TimedArm) -> float:
    """Of all samples of its one process, as the page says."""
    return 1e6 * median(chain.from_iterable(arm.samples_s))
