"""Certified bounds on the privacy loss of differentially private steps.

The API reads like that of Google's ``dp_accounting``: events are composed by an accountant, which is asked for epsilon or delta. What is returned is a
certified upper bound, and :meth:`PLDAccountant.bounds` has a lower one beside it.

>>> from dp_pvi_accounting import GaussianDpEvent, PLDAccountant, PoissonSampledDpEvent
>>> accountant = PLDAccountant().compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 1000)
>>> lower, estimate, upper = accountant.bounds(1e-5)
>>> bool(lower <= estimate <= upper < 1.8285)
True
"""

from .accountant import Bounds, NeighboringRelation, PLDAccountant, calibrate_noise_multiplier
from .events import (
    ComposedDpEvent,
    UnivariateDiscreteGaussianDpEvent,
    DiscreteLaplaceDpEvent,
    DpEvent,
    EpsilonDeltaDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    ZCDpEvent,
    from_dict,
    from_json,
)

__all__ = [
    "Bounds",
    "ComposedDpEvent",
    "UnivariateDiscreteGaussianDpEvent",
    "DiscreteLaplaceDpEvent",
    "DpEvent",
    "EpsilonDeltaDpEvent",
    "GaussianDpEvent",
    "LaplaceDpEvent",
    "NeighboringRelation",
    "NoOpDpEvent",
    "NonPrivateDpEvent",
    "PLDAccountant",
    "PoissonSampledDpEvent",
    "RandomizedResponseDpEvent",
    "SampledWithoutReplacementDpEvent",
    "SelfComposedDpEvent",
    "ZCDpEvent",
    "calibrate_noise_multiplier",
    "from_dict",
    "from_json",
]
