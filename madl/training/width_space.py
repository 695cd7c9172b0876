"""What a Linear layer of BERT is called: said without torch."""

import re


def kind(layer: str) -> str:
    """What a layer of BERT is for, the same in every block; a layer of the head stands alone."""
    tail = re.split(r"\.\d+\.", layer)[-1].removeprefix("bert.").removesuffix(".dense")
    known = {"attention.output": "output", "intermediate": "up", "output": "down"}
    return known.get(tail, tail.removeprefix("attention.self."))
