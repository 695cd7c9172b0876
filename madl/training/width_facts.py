"""A difference of two arms with every model's own beside it, in the words of the old pages."""

from madl.logbook.arms import Arm
from madl.logbook.stats import Estimate, listed


def apart(a: Arm, b: Arm) -> str:
    """A minus B: "+12.82 points [−1.72, +27.36], by model +19.90, +11.35 and +7.20"."""
    made, each = a - b, [x - y for x, y in zip(a.models, b.models, strict=True)]
    ends = f" [{', '.join(map(_signed, made.interval))}]" if made.interval else ""
    by_model = f", by model {listed([*map(_signed, each)])}" if len(each) > 1 else ""
    return f"{_signed(made)} points{ends}{by_model}"


def _signed(share: Estimate | float) -> str:
    """In points, to two decimals, so that models add up to their mean."""
    return f"{share:+.2%}".removesuffix("%").replace("-", "−")
