"""What a machine reaches when it does one kind of work and nothing else, from its own records."""

from itertools import chain

from madl.logbook.arms import timed
from madl.logbook.records import Record, Records


def rates(machine: Record, work: str) -> list[float]:
    """Operations or bytes a second, of each sample of this work in a case of `machine`."""
    samples = chain.from_iterable(timed(Records([machine]), work).samples_s)
    return [machine.values["amount"][work] / seconds for seconds in samples]
