"""How much work a run is: smoke proves that it works, quick answers, full decides."""

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A name, and what results made under it may be called."""

    name: str
    seeds: int
    banner: str

    def choose(self, *, smoke: T, quick: T, full: T) -> T:
        """An experiment's own budget for this profile."""
        return {"smoke": smoke, "quick": quick, "full": full}[self.name]


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="smoke",
            seeds=1,
            banner="Smoke run: a few sentences, to prove that every step works. "
            "Its numbers mean nothing.",
        ),
        Profile(
            name="quick",
            seeds=1,
            banner="Quick run: one seed and short budgets. Its claims are about the models "
            "trained in this run, not about methods.",
        ),
        Profile(name="full", seeds=3, banner=""),
    )
}
