"""The accountant: what composed events cost, between certified bounds."""

from __future__ import annotations

import enum
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union, overload

import numpy as np
import numpy.typing as npt

from . import _native
from .events import DpEvent, SelfComposedDpEvent, _count

__all__ = ["Bounds", "NeighboringRelation", "PLDAccountant", "calibrate_noise_multiplier"]

Numbers = Union[Sequence[float], npt.NDArray[Any]]


class NeighboringRelation(enum.Enum):
    """What neighbouring data sets differ by; the names are those of ``dp_accounting``."""

    ADD_OR_REMOVE_ONE = 1
    """One record is present or absent."""
    REPLACE_ONE = 2
    """One record is replaced by another."""
    REPLACE_SPECIAL = 3
    """One record's contribution is set to zero."""


class Bounds(NamedTuple):
    """A value between bounds: three numbers, or three arrays of one shape.

    ``upper`` is certified. ``lower`` is a certified lower bound on the value of the pair of distributions that is accounted; that pair is attained by data
    sets except for batches of fixed size under ``REPLACE_ONE``, and where steps are known by their rho or epsilon only.
    """

    lower: Any
    estimate: Any
    upper: Any


def _relation(relation: Any) -> NeighboringRelation:
    """Our relation of the same name: ``dp_accounting`` has an enum of its own."""
    name = str(getattr(relation, "name", relation))
    if name not in NeighboringRelation.__members__:
        raise ValueError(f"{relation!r} is no relation: take one of {', '.join(NeighboringRelation.__members__)}")
    return NeighboringRelation[name]


def _text(event: Any) -> str:
    """What the accountant reads: an event as it prints itself, or a text as it is."""
    if isinstance(event, str):
        return event
    if isinstance(event, DpEvent) or type(event).__name__.endswith("DpEvent"):
        return repr(event)
    raise TypeError(f"an event is one of dp_pvi_accounting or dp_accounting, or its text, and this is {event!r}")


def _unprotected(event: Any) -> bool:
    """Whether something in an event runs without any protection."""
    name = type(event).__name__
    if name == "SelfComposedDpEvent":
        return event.count > 0 and _unprotected(event.event)
    if name == "ComposedDpEvent":
        return any(_unprotected(one) for one in event.events)
    if name in ("PoissonSampledDpEvent", "SampledWithoutReplacementDpEvent"):
        return getattr(event, "sampling_probability", 1.0) > 0 and _unprotected(event.event)
    if name == "RandomizedResponseDpEvent":
        return bool(event.noise_parameter == 0 and event.num_buckets > 1)
    return name == "NonPrivateDpEvent" or getattr(event, "noise_multiplier", 1.0) == 0.0


def _each(
    values: Any, name: str, question: Callable[[List[float]], Sequence[Any]], parts: Tuple[int, ...]
) -> Tuple[npt.NDArray[np.float64], bool]:
    """Answers a question for a number or for an array of any shape: the parts of an answer along a last axis, and whether it was a number."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a number or an array of numbers, and this is {values!r}")
    answers = np.asarray(question(array.astype(np.float64).ravel().tolist()), dtype=np.float64)
    return answers.reshape(array.shape + parts), array.ndim == 0


class PLDAccountant:
    """Composes events that are all fixed before anything runs; the outputs may depend on each other in any way.

    Args:
        neighboring_relation: a :class:`NeighboringRelation`, that of ``dp_accounting``, or its name.

    Order and grouping do not matter. A reading after further steps goes on from the one before: whatever was asked before, the bounds are as certified, and
    their digits beyond what separates them may differ. Threads may share an accountant; while it computes, others run.

    >>> accountant = PLDAccountant().compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 1000)
    >>> round(accountant.get_epsilon(1e-5), 3)
    1.828
    """

    def __init__(self, neighboring_relation: Any = NeighboringRelation.ADD_OR_REMOVE_ONE) -> None:
        self._neighbors = _relation(neighboring_relation)
        self._plan = _native.Plan(self._neighbors.name)
        self._non_private = False

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """The relation of all statements."""
        return self._neighbors

    @property
    def event(self) -> Optional[str]:
        """What was composed, as one event of ``dp_accounting``; ``None`` where that has no event for a part of it."""
        return "NonPrivateDpEvent()" if self._non_private else self._plan.event()

    def supports(self, event: Any) -> bool:
        """Whether :meth:`compose` would take an event."""
        try:
            PLDAccountant(self._neighbors).compose(event)
        except (TypeError, ValueError):
            return False
        return True

    def compose(self, event: Any, count: int = 1) -> PLDAccountant:
        """Adds an event, ``count`` times; returns the accountant itself.

        Args:
            event: an event of this package or of ``dp_accounting``, or the text or JSON of one.
            count: how often it runs.

        Raises:
            ValueError: an event without a proved bound under this relation, named in the message, or a number out of range. Nothing is added then.
        """
        times = SelfComposedDpEvent(event, count).count
        if _unprotected(event):
            self._non_private = self._non_private or times > 0
            return self
        text = _text(event)
        if text.lstrip().startswith(("{", "[")):
            text = '{"class_name": "SelfComposedDpEvent", "count": %d, "event": %s}' % (times, text)
        else:
            text = f"SelfComposedDpEvent(event={text}, count={times})"
        self._plan.compose(text)
        return self

    def bounds(self, target_delta: Union[float, Numbers]) -> Bounds:
        """(lower, estimate, upper) of epsilon at delta; arrays of the shape of ``target_delta`` where that is an array.

        Raises:
            ValueError: a delta that is not strictly between 0 and 1.
        """
        return self._bounds(target_delta, "delta", self._plan.epsilon, np.inf)

    def delta_bounds(self, target_epsilon: Union[float, Numbers]) -> Bounds:
        """(lower, estimate, upper) of delta at epsilon; arrays of the shape of ``target_epsilon`` where that is an array.

        Raises:
            ValueError: an epsilon that is not a finite number at least 0.
        """
        return self._bounds(target_epsilon, "epsilon", self._plan.delta, 1.0)

    def _bounds(self, values: Any, name: str, question: Callable[[List[float]], Sequence[Any]], worst: float) -> Bounds:
        answers, single = _each(values, name, question, (3,))
        if self._non_private:
            answers = np.full_like(answers, worst)
        if single:
            return Bounds(*(float(one) for one in answers))
        return Bounds(*(np.ascontiguousarray(answers[..., k]) for k in range(3)))

    @overload
    def get_epsilon(self, target_delta: float) -> float: ...
    @overload
    def get_epsilon(self, target_delta: Numbers) -> npt.NDArray[np.float64]: ...
    def get_epsilon(self, target_delta: Any) -> Any:
        """The certified upper bound on epsilon at delta, for a number or an array of them.

        Raises:
            ValueError: a delta that is not strictly between 0 and 1.
        """
        return self.bounds(target_delta).upper

    @overload
    def get_delta(self, target_epsilon: float) -> float: ...
    @overload
    def get_delta(self, target_epsilon: Numbers) -> npt.NDArray[np.float64]: ...
    def get_delta(self, target_epsilon: Any) -> Any:
        """The certified upper bound on delta at epsilon, for a number or an array of them.

        Raises:
            ValueError: an epsilon that is not a finite number at least 0.
        """
        return self.delta_bounds(target_epsilon).upper

    def get_true_positive_rate(self, false_positive_rate: Any) -> Any:
        """A certified upper bound on how often any attack that raises this share of false alarms finds a record that is there.

        Raises:
            ValueError: a rate that is not between 0 and 1.
        """
        answers, single = _each(false_positive_rate, "a false positive rate", self._plan.true_positive_rate, ())
        if self._non_private:
            answers = np.ones_like(answers)
        return float(answers) if single else answers

    def get_trade_off(self, points: int = 100) -> Tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """False positive rates at ``points`` + 1 equal distances, and the smallest false negative rate at each; estimates, not certified.

        Raises:
            ValueError: no points, or more than 100,000.
        """
        curve = np.asarray(self._plan.trade_off(points), dtype=np.float64)
        return curve[:, 0].copy(), np.zeros(len(curve)) if self._non_private else curve[:, 1].copy()

    def __getstate__(self) -> Tuple[str, bytes, bool]:
        return self._neighbors.name, bytes(self._plan.to_bytes()), self._non_private

    def __setstate__(self, state: Tuple[str, bytes, bool]) -> None:
        name, plan, self._non_private = state
        self._neighbors = NeighboringRelation[name]
        self._plan = _native.Plan.from_bytes(plan)

    def __repr__(self) -> str:
        return f"PLDAccountant({self._neighbors.name}): {self.event or 'events that dp_accounting does not have'}"


def calibrate_noise_multiplier(
    make_event: Callable[[float], Any],
    target_epsilon: float,
    target_delta: float,
    neighboring_relation: Any = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """The smallest noise multiplier for which an event stays within epsilon at delta, on the safe side.

    Args:
        make_event: the event for a noise multiplier; its epsilon must fall when the noise grows.
        target_epsilon: what must not be exceeded.
        target_delta: at this delta.
        neighboring_relation: as for :class:`PLDAccountant`.

    Returns:
        A noise multiplier whose certified upper bound on epsilon is at most the target. It exceeds the smallest possible by about 2e-5 relative, as long
        as the bounds are as narrow as usual.

    Raises:
        ValueError: no noise multiplier reaches the target, or an event without a proved bound.

    >>> sigma = calibrate_noise_multiplier(lambda z: SelfComposedDpEvent(PoissonSampledDpEvent(0.1, GaussianDpEvent(z)), 2000), 2.0, 1e-5)
    >>> round(sigma, 3)
    8.977
    """
    found = _native.noise_multiplier(
        lambda sigma: _text(make_event(sigma)), _relation(neighboring_relation).name, float(target_epsilon), float(target_delta)
    )
    return float(found[2])
