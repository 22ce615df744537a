"""Events: what runs on the data, as values.

The classes have the names and fields of Google's ``dp_accounting``, and print themselves as those do. So an event of the one library may be given to the
other, and text that either printed is read by both.

Noise multipliers are noise over the norm of *one record's* term, whatever the neighbouring relation is: under ``REPLACE_ONE`` the accountant itself counts
that a record's term can change by twice its norm.
"""

from __future__ import annotations

import json
import math
import numbers
from dataclasses import dataclass, fields
from typing import Any, Dict, Sequence, Tuple, Union

__all__ = [
    "ComposedDpEvent",
    "UnivariateDiscreteGaussianDpEvent",
    "DiscreteLaplaceDpEvent",
    "DpEvent",
    "EpsilonDeltaDpEvent",
    "GaussianDpEvent",
    "LaplaceDpEvent",
    "NoOpDpEvent",
    "NonPrivateDpEvent",
    "PoissonSampledDpEvent",
    "RandomizedResponseDpEvent",
    "SampledWithoutReplacementDpEvent",
    "SelfComposedDpEvent",
    "ZCDpEvent",
]


def _number(value: Any, event: DpEvent, field: str) -> float:
    """``value`` as a finite Python float: numpy's numbers, too."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{type(event).__name__}: {field} must be a number, and this is {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{type(event).__name__}: {field} must be a finite number, and this is {value!r}: without protection is NonPrivateDpEvent")
    return float(value)


def _count(value: Any, event: DpEvent, field: str) -> int:
    """``value`` as a Python int that is at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not float(value).is_integer():
        raise TypeError(f"{type(event).__name__}: {field} must be a whole number, and this is {value!r}")
    whole = int(value) if isinstance(value, numbers.Integral) else int(float(value))
    if whole < 0:
        raise ValueError(f"{type(event).__name__}: {field} must be at least 0, and this is {value!r}")
    return whole


@dataclass(frozen=True)
class DpEvent:
    """What all events have in common."""

    def to_dict(self) -> Dict[str, Any]:
        """The event as a dictionary of plain values: ``class_name``, and a value for each field."""

        def plain(value: Any) -> Any:
            if isinstance(value, DpEvent):
                return value.to_dict()
            return [plain(one) for one in value] if isinstance(value, tuple) else value

        named = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return {"class_name": type(self).__name__, **named}

    def to_json(self) -> str:
        """The event as JSON; :func:`from_json` and ``dp-pvi-sim account --events`` read it."""
        return json.dumps(self.to_dict())


@dataclass(frozen=True)
class NoOpDpEvent(DpEvent):
    """Nothing runs, and nothing is lost."""


@dataclass(frozen=True)
class NonPrivateDpEvent(DpEvent):
    """A release without protection: epsilon is infinite and delta is 1."""


@dataclass(frozen=True)
class GaussianDpEvent(DpEvent):
    """Gaussian noise on a sum of terms whose L2 norm is bounded.

    Args:
        noise_multiplier: standard deviation of the noise over that bound.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _number(self.noise_multiplier, self, "noise_multiplier"))


@dataclass(frozen=True)
class LaplaceDpEvent(DpEvent):
    """Laplace noise on a sum of terms whose L1 norm is bounded.

    Args:
        noise_multiplier: scale of the noise over that bound.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", _number(self.noise_multiplier, self, "noise_multiplier"))


@dataclass(frozen=True)
class DiscreteLaplaceDpEvent(DpEvent):
    """Discrete Laplace noise on a sum of whole numbers; accounted by its pure epsilon.

    Args:
        noise_parameter: a, where the mass of the noise is proportional to exp(-a |x|).
        sensitivity: bound on the L1 norm of one record's term, a whole number.
    """

    noise_parameter: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_parameter", _number(self.noise_parameter, self, "noise_parameter"))
        object.__setattr__(self, "sensitivity", _count(self.sensitivity, self, "sensitivity"))


@dataclass(frozen=True)
class RandomizedResponseDpEvent(DpEvent):
    """Every record answers by one of several; accounted by its pure epsilon, under ``REPLACE_ONE`` and ``REPLACE_SPECIAL``.

    Args:
        noise_parameter: probability with which the answer is drawn from all of them.
        num_buckets: how many answers there are.
    """

    noise_parameter: float
    num_buckets: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_parameter", _number(self.noise_parameter, self, "noise_parameter"))
        object.__setattr__(self, "num_buckets", _count(self.num_buckets, self, "num_buckets"))


@dataclass(frozen=True)
class UnivariateDiscreteGaussianDpEvent(DpEvent):
    """Discrete Gaussian noise on one integer. The one of ``dp_accounting`` is on a vector, and has no bound here.

    Args:
        scale: parameter s of the noise, whose mass is proportional to exp(-x^2 / (2 s^2)).
        sensitivity: what one record changes at most, a whole number.
    """

    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _number(self.scale, self, "scale"))
        object.__setattr__(self, "sensitivity", _count(self.sensitivity, self, "sensitivity"))


@dataclass(frozen=True)
class ZCDpEvent(DpEvent):
    """Anything that is rho-zero-concentrated differentially private under the accountant's relation. Only ``xi = 0`` has a bound."""

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", _number(self.rho, self, "rho"))
        object.__setattr__(self, "xi", _number(self.xi, self, "xi"))


@dataclass(frozen=True)
class EpsilonDeltaDpEvent(DpEvent):
    """Anything that is (epsilon, delta)-differentially private under the accountant's relation. ``dp_accounting`` has no such event."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _number(self.epsilon, self, "epsilon"))
        object.__setattr__(self, "delta", _number(self.delta, self, "delta"))


@dataclass(frozen=True)
class PoissonSampledDpEvent(DpEvent):
    """Every record takes part with a probability, independently; the event runs on those that do.

    Args:
        sampling_probability: between 0 and 1.
        event: what runs on the sample; a :class:`GaussianDpEvent`.
    """

    sampling_probability: float
    event: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_probability", _number(self.sampling_probability, self, "sampling_probability"))


@dataclass(frozen=True)
class SampledWithoutReplacementDpEvent(DpEvent):
    """A fresh batch of fixed size; the event runs on it.

    Args:
        source_dataset_size: records of the data set.
        sample_size: records of the batch.
        event: what runs on the batch; a :class:`GaussianDpEvent`.
    """

    source_dataset_size: int
    sample_size: int
    event: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "source_dataset_size", _count(self.source_dataset_size, self, "source_dataset_size"))
        object.__setattr__(self, "sample_size", _count(self.sample_size, self, "sample_size"))


@dataclass(frozen=True)
class SelfComposedDpEvent(DpEvent):
    """The same event again and again, each time with fresh coins and noise.

    Args:
        event: one time.
        count: how often.
    """

    event: Any
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _count(self.count, self, "count"))


@dataclass(frozen=True)
class ComposedDpEvent(DpEvent):
    """Several events one after the other.

    Args:
        events: a sequence of events.
    """

    events: Union[Sequence[Any], Tuple[Any, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))

    def __repr__(self) -> str:
        return f"ComposedDpEvent(events={list(self.events)!r})"


_CLASSES = {cls.__name__: cls for cls in DpEvent.__subclasses__()}


def from_dict(value: Any) -> DpEvent:
    """The event of a dictionary that :meth:`DpEvent.to_dict` made.

    Raises:
        ValueError: no ``class_name``, or one that is not known here.
        TypeError: fields that the class does not have.
    """
    if not isinstance(value, dict) or "class_name" not in value:
        raise ValueError(f"an event is a dictionary with class_name, and this is {value!r}")
    cls = _CLASSES.get(value["class_name"])
    if cls is None:
        raise ValueError(f"{value['class_name']} is no event that is known here: one of {', '.join(sorted(_CLASSES))}")

    def event(value: Any) -> Any:
        if isinstance(value, list):
            return [from_dict(one) for one in value]
        return from_dict(value) if isinstance(value, dict) else value

    return cls(**{name: event(one) for name, one in value.items() if name not in ("class_name", "module_name")})


def from_json(text: str) -> DpEvent:
    """The event of a text that :meth:`DpEvent.to_json` made.

    Raises:
        ValueError: no JSON, or no event.
    """
    return from_dict(json.loads(text))
