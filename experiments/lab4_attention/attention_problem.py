"""One attention to compute, in numbers: its operations, and what each form of it must move.

Units: `flops` counts a multiplication and an addition as two, of the matrix products alone; the
softmax is left out, as is usual. `moved_bytes` counts each pass over a matrix of scores and one
over q, k, v and the output, as if no cache kept any of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NAIVE, TUNED = "naive", "tuned"
WRITTEN_OUT = (NAIVE, TUNED)

# The product writes the scores, the softmax reads and writes them, the second product reads them;
# a division by itself reads and writes them once more.
SCORE_PASSES: Mapping[str, int] = {NAIVE: 6, TUNED: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One attention to compute."""

    batch: int
    heads: int
    length: int
    head_dim: int
    dtype: str
    mask: str = "none"
    backward: bool = False

    @property
    def item_bytes(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def flops(self) -> float:
        """Of the products: two forward, four more backward; a causal mask needs half of each."""
        products = 6 if self.backward else 2
        pairs = self.length * (self.length + 1) / 2 if self.mask == "causal" else self.length**2
        return products * 2.0 * self.batch * self.heads * pairs * self.head_dim

    @property
    def score_bytes(self) -> int:
        """One matrix of scores, a number for every pair of positions."""
        return self.batch * self.heads * self.length**2 * self.item_bytes

    @property
    def tensor_bytes(self) -> int:
        """One of q, k, v and the output."""
        return self.batch * self.heads * self.length * self.head_dim * self.item_bytes

    def moved_bytes(self, form: str) -> int:
        """What this form reads and writes forward; a fused one writes no scores."""
        return SCORE_PASSES.get(form, 0) * self.score_bytes + 4 * self.tensor_bytes
