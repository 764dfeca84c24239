"""From samples to an entry: median, percentiles, and what was unusual."""

from __future__ import annotations

import statistics as stats
from collections.abc import Sequence
from math import sqrt

from windtunnel.cost.profile import Entry, Key

STABLE = 0.01
"""Relative change of the running median below which a warm-up has settled and a series needs no more samples."""
FAR = 5.0
"""Median absolute deviations from the median beyond which a sample is an outlier."""
THROTTLED = 0.05
"""Relative slowdown of the reference beyond which the clock is taken to have fallen."""


def entry(key: Key, samples: Sequence[float], remarks: Sequence[str] = ()) -> Entry:
    """The entry of a series; outliers stay in the percentiles and are counted in a remark."""
    middle = stats.median(samples)
    cuts = stats.quantiles(samples, n=10, method="inclusive") if len(samples) > 1 else [middle] * 9
    far = outliers(samples)
    found = (*remarks, *([f"{far} outliers"] if far else []))
    return Entry(key=key, seconds=middle, low=cuts[0], high=cuts[-1], repeats=len(samples), remarks=found)


def outliers(samples: Sequence[float]) -> int:
    """Samples far from the median in units of the median deviation."""
    middle = stats.median(samples)
    deviation = stats.median(abs(sample - middle) for sample in samples)
    return sum(abs(sample - middle) > FAR * max(deviation, STABLE * middle) for sample in samples)


def settled(samples: Sequence[float], last: int = 5) -> bool:
    """Whether the median of the last samples is that of those before them."""
    if len(samples) < 2 * last:
        return False
    before, now = stats.median(samples[-2 * last : -last]), stats.median(samples[-last:])
    return abs(now / before - 1) < STABLE


def precise(samples: Sequence[float], least: int) -> bool:
    """Whether the median is known to 1 %: 1.25 standard errors of the central 80 %, at least ``least`` samples."""
    if len(samples) < least:
        return False
    middle = stats.median(samples)
    cuts = stats.quantiles(samples, n=10, method="inclusive")
    deviation = (cuts[-1] - cuts[0]) / 2.56
    return bool(1.25 * deviation / sqrt(len(samples)) < STABLE * middle)


def throttled(reference: Sequence[float]) -> bool:
    """Whether the last time of a reference kernel is slower than its best by more than 5 %."""
    return len(reference) > 1 and reference[-1] > (1 + THROTTLED) * min(reference)
