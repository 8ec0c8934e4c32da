"""The search over one kernel's implementations and schedules: by evolution, with a model of what each will cost.

Guarantees: nothing is proposed twice (two schedules that make one nest are one); what is given as a start comes first; the
same seed and times give the same proposals.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loopwright.ir.attributes import Attributes, attributes_key
from loopwright.ir.dataclass import dataclass
from loopwright.ir.graph import Node
from loopwright.ir.schedule import Inline, InPlace, Schedule
from loopwright.lower.scheduling import Scheduled
from loopwright.lower.tuning.platforms import PROCESSOR, Model, Platform

POPULATION = 64
GENERATIONS = 2
PARENTS = 16
MUTATION = 0.85  # of children have one parent, changed by a decision; the others have two
EPSILON = 0.05  # of proposals are not the best predicted
TRIES = 2  # children made for each one wanted, at most
PATIENCE = 24  # trials without gain that halve what more are worth
HOPE = 0.02  # of the best time: machines surprise


@dataclass(frozen=True)
class _Point:
    """A candidate of the generated kind; `parent`: the nest that it was made from."""

    attrs: Attributes
    schedule: Schedule
    made: Scheduled
    features: np.ndarray
    parent: int | None


class KernelSearch:
    """The candidates of one kernel at some sizes. `model.predict` sees matrices of `features`."""

    def __init__(self, node: Node, sizes: Mapping[str, int], starts: Sequence[Attributes], model: Model,
                 seed: int = 0, platform: Platform = PROCESSOR) -> None:
        self.node, self.sizes, self.model = node, dict(sizes), model
        self.rng = np.random.default_rng(seed)
        self.platform = platform
        self.points: dict[int, _Point] = {}  # by nest
        self.proposed: set[object] = set()
        self.seconds: dict[object, float] = {}
        self.best: tuple[Attributes, float] = (starts[0], float("inf"))
        self.stale = 0
        self._starts: list[tuple[object, Attributes]] = []
        generated = any(attrs["implementation"] == "generated" for attrs in starts)
        self.space = platform.space(node.regions[0], self.sizes) if generated else None
        for attrs in starts:
            key = self._key(attrs)
            if key is not None and key not in [k for k, _ in self._starts]:
                self._starts.append((key, attrs))

    # ---- candidates --------------------------------------------------------------------------------
    def _key(self, attrs: Attributes) -> object:
        """What a candidate is: a nest, or an implementation with its attributes; None where it is not legal."""
        if attrs["implementation"] != "generated":
            return attributes_key(attrs)
        return self._point(attrs, attrs["schedule"])

    def _point(self, attrs: Attributes, schedule: Schedule, parent: int | None = None) -> int | None:
        """The nest of a schedule, noted; None where it is not legal."""
        made = self.space.replay(schedule) if self.space else None
        if made is None:
            return None
        key = hash(made.nest)
        if key not in self.points:
            described = self.platform.features(made.nest, self.sizes)
            self.points[key] = _Point({**attrs, "schedule": schedule}, schedule, made, described, parent)
        return key

    def _lean(self, key: int) -> Attributes:
        """A candidate without instructions that change nothing."""
        p = self.points[key]
        kept = p.schedule
        for x in p.schedule:
            rest = tuple([y for y in kept if y is not x])
            if not isinstance(x, Inline | InPlace) and self._point(p.attrs, rest) == key:
                kept = rest
        return {**p.attrs, "schedule": kept}

    # ---- proposing ---------------------------------------------------------------------------------
    def propose(self, count: int) -> list[Attributes]:
        """Up to `count` candidates that were not proposed before; none when the space is done."""
        left = [(key, attrs) for key, attrs in self._starts if key not in self.proposed]
        out, self._starts = left[:count], left[count:]
        self.proposed.update([key for key, _ in out])
        if len(out) < count and self.space is not None:
            out += [(key, self._lean(key)) for key in self._evolved(count - len(out))]
        self.proposed.update([key for key, _ in out])
        return [attrs for _, attrs in out]

    def _evolved(self, count: int) -> list[int]:
        """The nests that are worth measuring next."""
        measured = [k for k in self.points if self.seconds.get(k, float("inf")) < float("inf")]
        parents = sorted(measured, key=lambda k: self.seconds[k])[:PARENTS] or list(self.points)[:PARENTS]
        fresh: dict[int, None] = {}
        pool = parents
        for _ in range(GENERATIONS):
            fresh.update(dict.fromkeys(self._children(pool)))
            pool = [*parents, *self._ranked([*fresh])[:PARENTS]]
        ranked = self._ranked([*fresh])
        chosen = ranked[:count]
        for k in range(len(chosen)):
            if len(ranked) > count and self.rng.random() < EPSILON:
                chosen[k] = ranked[int(self.rng.integers(count, len(ranked)))]
        return list(dict.fromkeys(chosen))

    def _children(self, pool: Sequence[int]) -> list[int]:
        """Nests that were not proposed, made of those of the pool."""
        found: dict[int, None] = {}
        assert self.space is not None
        for _ in range(TRIES * POPULATION if pool else 0):
            first, second = (pool[int(self.rng.integers(len(pool)))] for _ in range(2))
            a, b = self.points[first], self.points[second]
            if self.rng.random() < MUTATION or a is b:
                schedule = self.space.mutated(a.schedule, a.made, self.rng)
            else:
                schedule = self.space.crossed(a.schedule, b.schedule, self.rng)
            key = self._point(a.attrs, schedule, first)
            if key is not None and key not in self.proposed:
                found[key] = None
            if len(found) == POPULATION:
                break
        return list(found)

    def _ranked(self, keys: Sequence[int]) -> list[int]:
        """Nests by what they are expected to take; what is expected alike in any order."""
        if not keys:
            return []
        shuffled = [keys[int(k)] for k in self.rng.permutation(len(keys))]
        return [shuffled[int(k)] for k in np.argsort(self._expected(shuffled), kind="stable")]

    def _expected(self, keys: Sequence[int]) -> np.ndarray:
        """Seconds by the model, put right by how far it was off for the nearest ancestor that was measured."""
        known = [self._measured_ancestor(k) for k in keys]
        predicted: np.ndarray = self.model.predict(np.stack([self.points[k].features for k in (*keys, *known)]))
        taken = np.array([self.seconds.get(k, float("inf")) for k in known])
        off = np.where(np.isfinite(taken), taken / predicted[len(keys):], 1.0)
        found: np.ndarray = predicted[:len(keys)] * off
        return found

    def _measured_ancestor(self, key: int) -> int:
        """The nearest of a nest and those that it comes from that has a time; else the first of them."""
        while self.seconds.get(key, float("inf")) == float("inf") and (parent := self.points[key].parent) is not None:
            key = parent
        return key

    def predicted(self, attrs: Attributes) -> float | None:
        """Seconds that are expected of a candidate; None where there is no nest to see."""
        key = self._key(attrs)
        return float(self._expected([key])[0]) if isinstance(key, int) and attrs["implementation"] == "generated" else None

    # ---- learning ----------------------------------------------------------------------------------
    def learn(self, attrs: Attributes, seconds: float) -> None:
        """What a candidate took; infinite for a failure."""
        key = self._key(attrs)
        self.seconds[key] = seconds
        self.stale += key in self.proposed
        self.proposed.add(key)
        if seconds < self.best[1]:
            self.best, self.stale = (attrs, seconds), 0

    @property
    def roofline(self) -> float:
        """Seconds that the kernel takes at least, whatever makes it."""
        return self.platform.least_seconds(self.node.regions[0], self.sizes, [p.features for p in self.points.values()])

    def promise(self) -> float:
        """Seconds that more trials may still save; infinite before any is known, 0 when there is nothing left to try."""
        if self._starts:
            return float("inf")
        if self.space is None:
            return 0.0
        return max(self.best[1] - self.roofline, HOPE * self.best[1]) * float(0.5 ** (self.stale / PATIENCE))
