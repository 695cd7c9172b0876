"""The saving of packed weights, predicted from a model's parameter list.

Units: bytes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A model's weights in bytes, before and after they are packed."""

    num_packed: int  # weights, not bytes
    num_parameters: int
    dense_bytes: int  # of the weights that get packed, before
    packed_bytes: int  # and after
    kept_bytes: int  # all other parameters and buffers

    @property
    def before_bytes(self) -> int:
        return self.dense_bytes + self.kept_bytes

    @property
    def after_bytes(self) -> int:
        return self.packed_bytes + self.kept_bytes

    @property
    def saved(self) -> float:
        """The share of the bytes that packing saves, 0…1."""
        return 1 - self.after_bytes / self.before_bytes


def ledger(model: "nn.Module", *, bits: int, scale_bits: int, block: int) -> Ledger:
    """The memory of a model whose Linear weights get `bits` each and a scale for every block.

    Works on the meta device, from a configuration alone. Blocks run along rows; a short last block
    of a row counts as one.
    """
    from madl.compression.quantize import linear_layers

    weights = [layer.weight for layer in linear_layers(model)]
    everything = {id(t): t for t in (*model.parameters(), *model.buffers())}  # shared ones once
    dense = sum(w.nbytes for w in weights)
    scales = sum(w.shape[0] * -(-w.shape[1] // block) for w in weights)
    return Ledger(
        num_packed=sum(w.numel() for w in weights),
        num_parameters=sum(p.numel() for p in model.parameters()),
        dense_bytes=dense,
        packed_bytes=(sum(w.numel() for w in weights) * bits + scales * scale_bits) // 8,
        kept_bytes=sum(t.nbytes for t in everything.values()) - dense,
    )
