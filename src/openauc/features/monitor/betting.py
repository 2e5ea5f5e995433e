r"""Betting against "nothing has changed" on online conformal p-values.

If the samples of a stream are exchangeable with reference samples, the rank of each among the reference *and all
samples before it* is uniform, and independent of the ranks before; ties are broken at random. So the p-values

.. math:: p_t = \frac{\#\{s_i > s_t\} + u_t\,\#\{s_i = s_t\}}{n + t}, \qquad i \le n + t,

are independent and uniform, exactly, whatever the distribution (Vovk et al., 2003). P-values among the reference
alone are not: given these n samples they deviate from uniform by about :math:`1/\sqrt n`, and a long stream shows it.

A bet is a density f on [0, 1]. Who stakes everything on it has the wealth :math:`\prod f(p_t)`. This is a martingale
that begins at 1, so it ever reaches :math:`1/\alpha` with probability at most :math:`\alpha` (Ville, 1939). A change
may come late. So a part :math:`T(t - 1) - T(t)` of the stake is bet from time t on, where
:math:`T(t) = 1/(1 + \log(1 + t/100))` is kept back for later: the sum over all beginnings is a martingale too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Bets = Callable[[Floats], Floats]  # (n,) p-values to (n, B) logarithms of densities, one for each bet

# Bits of the mantissa that are kept, to bound the number of distinct scores; ties by rounding are broken at random.
BITS = 14
BLOCK = 256
PATIENCE = 100.0
RISES, FALLS = (1.5, 2.5, 6.0), (0.6, 0.25)  # odds of a p-value in the tail, relative to uniform p-values
MIXED = ((0.03, 0.25), (0.1, 0.25), (0.3, 0.25), (1.0, 0.5))  # a share of samples with the density a p^(a-1), and a

_SHIFT = 9 + BITS
_SMALLEST = 1e-12


class Ranks:
    """Counts of scores by group: the distinct pairs of group and rounded score as rising integers, and their counts.

    >>> ranks = Ranks()
    >>> ranks.add(np.array([1.0, 2.0, 3.0]), np.zeros(3, int))
    >>> ranks.p_values(np.array([2.5, 2.5]), np.zeros(2, int), np.ones(2)).tolist()
    [0.5, 0.6]
    """

    def __init__(self) -> None:
        self.keys = np.empty(0, np.int64)
        self.counts = np.empty(0, np.int64)

    def add(self, score: NDArray[np.floating], group: Counts) -> None:
        """Count scores without ranking them."""
        self._count(_keys(score, group))

    def p_values(self, score: NDArray[np.floating], group: Counts, chance: Floats) -> Floats:
        """(n,) p-value of each score among those of its group before it; ``chance``, uniform numbers, breaks ties."""
        keys = _keys(score, group)
        found = [self._ranked(keys[at : at + BLOCK], chance[at : at + BLOCK]) for at in range(0, len(keys), BLOCK)]
        return np.concatenate([np.empty(0), *found])

    def _ranked(self, key: Counts, chance: Floats) -> Floats:
        total = np.concatenate([[0], np.cumsum(self.counts)])
        group = key >> _SHIFT
        ends = [group << _SHIFT, key, key + 1, (group + 1) << _SHIFT]
        first, low, high, end = (total[np.searchsorted(self.keys, edge)] for edge in ends)
        earlier = np.tri(len(key), k=-1, dtype=bool) & (group[:, None] == group)
        above = end - high + (earlier & (key > key[:, None])).sum(1)
        equal = high - low + (earlier & (key == key[:, None])).sum(1)
        size = end - first + earlier.sum(1)
        self._count(key)
        return np.asarray((above + chance * (equal + 1)) / (size + 1))

    def _count(self, key: Counts) -> None:
        new, counts = np.unique(key, return_counts=True)
        place = np.searchsorted(self.keys, new)
        old = np.append(self.keys, -1)[place] == new
        self.counts[place[old]] += counts[old]
        self.keys = np.insert(self.keys, place[~old], new[~old])
        self.counts = np.insert(self.counts, place[~old], counts[~old])


def _keys(score: NDArray[np.floating], group: Counts) -> Counts:
    """Group and score as one integer that grows with both."""
    with np.errstate(over="ignore"):
        bits = (score.astype(np.float32) + np.float32(0.0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31)).astype(np.int64)
    return (np.asarray(group, np.int64) << _SHIFT) | (ordered >> (32 - _SHIFT))


class Wealth:
    """Wealth of B bets that may begin at any time, in G groups of samples that each count their own time."""

    def __init__(self, bets: Bets, groups: int = 1) -> None:
        shape = (groups, bets(np.array([0.5])).shape[1])
        self.bets = bets
        self.staked = np.full(shape, -np.inf)  # logarithm of what has been staked and multiplied
        self.seen = np.zeros(groups, np.int64)  # number of p-values so far
        self.lead = np.zeros(shape)  # gain of each bet since it was at its lowest, as a logarithm
        self.since = np.zeros(shape, np.int64)  # the time after that: the likely beginning of a change
        self.samples = np.zeros(shape, np.int64)  # number of samples since then
        self.hits = np.zeros(shape, np.int64)  # and how many of them were hits
        self.highest = np.zeros(groups)  # highest evidence so far, as a logarithm; kept by the monitor

    def update(self, p_value: Floats, group: Counts, time: Counts, hit: NDArray[np.bool_] | None = None) -> Floats:
        """(n,) logarithm of the wealth of its group after each p-value.

        ``time``, which rises, and ``hit`` are what :meth:`beginning` tells of.
        """
        hits = np.zeros(len(p_value), bool) if hit is None else hit
        gain = self.bets(np.clip(p_value, _SMALLEST, 1.0 - _SMALLEST))
        found = np.empty(len(p_value))
        order = np.argsort(group, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []:
            found[rows] = self._bet(int(group[rows[0]]), gain[rows])
            self._follow(int(group[rows[0]]), gain[rows], time[rows], hits[rows])
        return found

    def beginning(self, group: int) -> tuple[int, float]:
        """Time at which a change in a group likely began, by the bet that has gained most; share of hits since."""
        bet = group, self.staked[group].argmax()
        return int(self.since[bet]), float(self.hits[bet] / max(self.samples[bet], 1))

    def _bet(self, group: int, gain: Floats) -> Floats:
        after = self.seen[group] + np.arange(1, len(gain) + 1)
        kept = _kept_back(after)
        multiplied = np.cumsum(gain, axis=0)
        begun = np.log(_kept_back(after - 1) - kept)[:, None] - (multiplied - gain)
        staked = np.logaddexp.accumulate(np.concatenate([self.staked[group][None], begun]))[1:] + multiplied
        self.staked[group], self.seen[group] = staked[-1], after[-1]
        mean = np.logaddexp.reduce(staked, axis=1) - np.log(staked.shape[1])
        return np.asarray(np.logaddexp(mean, np.log(kept)))

    def _follow(self, group: int, gain: Floats, time: Counts, hit: NDArray[np.bool_]) -> None:
        """Update ``lead``, ``since`` and the counts: a bet begins again where its gain is at its lowest."""
        height = np.concatenate([np.zeros((1, gain.shape[1])), self.lead[group] + np.cumsum(gain, axis=0)])
        lowest = np.minimum.accumulate(height)
        self.lead[group] = height[-1] - lowest[-1]
        last = len(gain) - np.argmax((height <= lowest)[::-1], axis=0)  # in height, whose row r + 1 is sample r
        following = np.append(time, time[-1] + 1)
        begins = last > 0
        self.since[group] = np.where(begins, following[last], self.since[group])
        hits = np.append(0, np.cumsum(hit))
        for count, total in ((self.samples, np.arange(len(hits))), (self.hits, hits)):
            count[group] = np.where(begins, 0, count[group]) + total[-1] - total[last]


def _kept_back(time: Counts) -> Floats:
    return np.asarray(1.0 / (1.0 + np.log1p(time / PATIENCE)))


def tail_bets(levels: Sequence[float], *, falls: bool = True) -> Bets:
    """Bets that more (with ``falls`` also fewer) p-values than expected are at most one of ``levels``."""
    level, odds = np.array([(a, o) for a in levels for o in (*RISES, *(FALLS if falls else ()))]).T
    share = odds * level / (1.0 - level + odds * level)
    inside, outside = np.log(share / level), np.log((1.0 - share) / (1.0 - level))
    return lambda p: np.where(p[:, None] <= level, inside, outside)


def shape_bets(*, falls: bool = True) -> Bets:
    """Bets that small p-values are too frequent; with ``falls`` also large ones, both, or those in the middle."""

    def bets(p: Floats) -> Floats:
        rises = [1.0 - share + share * a * p ** (a - 1.0) for share, a in MIXED]
        if not falls:
            return np.log(np.stack(rises, axis=1))
        high, highest = (1.0 - share + share * a * (1.0 - p) ** (a - 1.0) for share, a in (MIXED[1], MIXED[3]))
        others = [high, highest, (rises[2] + high) / 2.0, 0.4 + 3.6 * p * (1.0 - p)]
        return np.log(np.stack([*rises, *others], axis=1))

    return bets
