"""Rates and prices that order plans nobody has tried. Values live in ``data/search`` with unit and source each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeRates:
    """Of a step on the back of an envelope."""

    reached: float
    """Share of wire bandwidth that large collectives reach."""
    exchanged: float
    """The same of an exchange of small pieces."""
    hidden: float
    """Share of traffic that an overlap hides."""
    hidden_tensor: float
    """What the overlap of tensor parallelism hides, as a share of ``hidden``."""
    shown_gathers: float
    """Of weights gathered for every use, what is waited for, as a share of what ``hidden`` leaves."""
    state_bytes: float
    """Of one parameter, read and written by the optimizer on the device."""
    host_bytes: float
    """Of one parameter, sent to a host that keeps the states, and back."""
    layer_bytes: float
    """Moved through memory by the element-wise parts of a layer, for one token and channel, forward."""
    offloaded_width: float
    """Numbers of a layer sent to the host and back, for one token and channel."""
    kept_certain: float
    """Share of the guessed bytes of activations that a plan surely keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeShares:
    """What is executed again, as a share of the forward."""

    selective: float
    per_op: float
    light: float
    """Of a layer, what a module without an entry of its own is."""
    chunk_layers: float
    """Layers of a chunk where the pipeline is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderPrices:
    """What a plan gives up so as to fit, as a share of its step."""

    host: float
    """The optimizer state on the host."""
    host_activations: float
    """All activations on the host, in times ``host``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is believed of a value of an axis before trials have shown it."""

    weight: float
    """Of the belief that a value changes nothing, in trials."""
    reach: float
    """How far a value that was never tried may move a step beyond the guess, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    envelope: EnvelopeRates
    bubble: Mapping[str, float]
    """Waiting for each other stage, in micro-batches, by schedule; others wait one over their chunks per stage."""
    recompute: RecomputeShares
    modules: Mapping[str, float]
    """Share of a layer's forward that a recomputed module is."""
    ladder: LadderPrices
    sharding: Mapping[str, float]
    """Price of a way of sharding, as a share of the step; from the one that sends least."""
    belief: Belief
