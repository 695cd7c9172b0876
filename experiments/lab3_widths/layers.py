"""What a Linear layer of BERT is called, and where it stands: said without torch."""

import re


def block(layer: str) -> int | None:
    """The number of the block that a layer stands in; None for the head, which comes after all."""
    found = re.search(r"\.(\d+)\.", layer)
    return int(found[1]) if found else None


def kind(layer: str) -> str:
    """What a layer of BERT is for, the same in every block; a layer of the head stands alone."""
    tail = re.split(r"\.\d+\.", layer)[-1].removeprefix("bert.").removesuffix(".dense")
    known = {"attention.output": "output", "intermediate": "up", "output": "down"}
    return known.get(tail, tail.removeprefix("attention.self."))
