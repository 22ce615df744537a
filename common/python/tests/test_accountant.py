"""The package as its users see it; where the numbers come from is tested in Rust."""

import copy
import doctest
import pickle
import sys
import threading

import numpy as np
import pytest

import dp_pvi_accounting as dp

STEP = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0))


def test_the_examples_of_the_documentation_hold():
    names = {name: getattr(dp, name) for name in dp.__all__}
    for module in (dp, sys.modules["dp_pvi_accounting.accountant"]):
        failed, tried = doctest.testmod(module, extraglobs=names)
        assert tried > 0 and failed == 0


def test_epsilon_lies_between_its_bounds_and_is_the_upper_one():
    accountant = dp.PLDAccountant().compose(STEP, 1000)
    lower, estimate, upper = accountant.bounds(1e-5)
    assert lower <= estimate <= upper <= lower * (1 + 1e-3)
    assert accountant.get_epsilon(1e-5) == upper
    assert accountant.get_delta(upper) <= 1e-5 * (1 + 1e-3)
    assert isinstance(upper, float)


def test_arrays_of_any_shape_come_back_in_it():
    accountant = dp.PLDAccountant().compose(STEP, 100)
    deltas = np.array([[1e-3, 1e-5], [1e-6, 1e-9]])
    epsilons = accountant.get_epsilon(deltas)
    assert epsilons.shape == (2, 2) and epsilons.dtype == np.float64
    assert epsilons[0, 1] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    assert (np.diff(epsilons.ravel()) > 0).all()
    bounds = accountant.delta_bounds([0, 1, 2])
    assert bounds.lower.shape == (3,) and (bounds.lower <= bounds.upper).all()
    assert accountant.get_epsilon(np.array([])).shape == (0,)
    assert accountant.get_epsilon(np.float32(0.25)) == accountant.get_epsilon(0.25)
    caught = accountant.get_true_positive_rate([0.01, 0.1])
    assert (caught > [0.01, 0.1]).all() and (caught < 1).all()
    alarms, missed = accountant.get_trade_off(50)
    assert alarms.shape == missed.shape == (51,) and (np.diff(missed) <= 0).all()


def test_order_and_grouping_do_not_matter():
    one = dp.PLDAccountant().compose(STEP, 60).compose(dp.LaplaceDpEvent(2.0)).compose(STEP, 40)
    other = dp.PLDAccountant().compose(dp.ComposedDpEvent([dp.LaplaceDpEvent(2.0), dp.SelfComposedDpEvent(STEP, 100)]))
    assert one.get_epsilon(1e-6) == other.get_epsilon(1e-6)
    assert one.event == other.event


@pytest.mark.parametrize("relation", list(dp.NeighboringRelation))
def test_relations_are_taken_by_value_and_by_name(relation):
    one, other = dp.PLDAccountant(relation), dp.PLDAccountant(relation.name)
    assert one.compose(dp.GaussianDpEvent(2.0)).get_epsilon(1e-5) == other.compose(dp.GaussianDpEvent(2.0)).get_epsilon(1e-5)
    assert one.neighboring_relation is relation


def test_a_replaced_record_costs_as_much_as_half_the_noise():
    replaced = dp.PLDAccountant(dp.NeighboringRelation.REPLACE_ONE).compose(dp.GaussianDpEvent(2.0))
    assert replaced.get_epsilon(1e-5) == pytest.approx(dp.PLDAccountant().compose(dp.GaussianDpEvent(1.0)).get_epsilon(1e-5), rel=1e-9)


def test_nothing_costs_nothing():
    accountant = dp.PLDAccountant().compose(dp.NoOpDpEvent()).compose(STEP, 0)
    assert accountant.get_epsilon(1e-5) == 0.0 and accountant.get_delta(0.0) == 0.0


def test_what_is_not_protected_costs_everything():
    accountant = dp.PLDAccountant().compose(STEP).compose(dp.NonPrivateDpEvent(), 0)
    assert np.isfinite(accountant.get_epsilon(1e-5))
    accountant.compose(dp.ComposedDpEvent([STEP, dp.GaussianDpEvent(0.0)]))
    assert accountant.get_epsilon(1e-5) == np.inf and accountant.get_delta(3.0) == 1.0
    assert accountant.get_true_positive_rate(0.01) == 1.0


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(2.0)), "PoissonSampledDpEvent: no proved bound"),
        (dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(2.0)), "sampling rate"),
        (dp.RandomizedResponseDpEvent(0.5, 2), "RandomizedResponseDpEvent: every record answers"),
        (dp.ZCDpEvent(0.1, 0.2), "ZCDpEvent: only xi = 0"),
        (dp.SampledWithoutReplacementDpEvent(10, 11, dp.GaussianDpEvent(1.0)), "sample_size"),
        ("SingleEpochTreeAggregationDpEvent(noise_multiplier=1.0, step_counts=4)", "SingleEpochTreeAggregationDpEvent: no proved bound"),
        ("GaussianDpEvent(", "line 1, column"),
    ],
)
def test_what_has_no_bound_is_refused_by_name_and_adds_nothing(event, words):
    accountant = dp.PLDAccountant().compose(STEP)
    before = accountant.get_epsilon(1e-5)
    with pytest.raises(ValueError, match=words):
        accountant.compose(dp.ComposedDpEvent([STEP, event]) if isinstance(event, dp.DpEvent) else event)
    assert accountant.get_epsilon(1e-5) == before
    assert not accountant.supports(event) and accountant.supports(STEP)


def test_pure_mechanisms_cost_their_largest_loss():
    answers = dp.PLDAccountant("REPLACE_ONE").compose(dp.RandomizedResponseDpEvent(0.5, 2))
    assert answers.get_epsilon(1e-9) == pytest.approx(np.log(3), rel=1e-6)
    assert dp.PLDAccountant().compose(dp.DiscreteLaplaceDpEvent(0.25, 3)).get_epsilon(1e-9) == pytest.approx(0.75, rel=1e-6)
    assert dp.PLDAccountant("REPLACE_ONE").compose(dp.RandomizedResponseDpEvent(0.0, 2)).get_epsilon(1e-9) == np.inf


def test_wrong_values_are_named():
    accountant = dp.PLDAccountant().compose(STEP)
    for wrong in (0.0, 1.0, -1.0, float("nan"), [0.1, 2.0]):
        with pytest.raises(ValueError, match="delta must be"):
            accountant.get_epsilon(wrong)
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="epsilon must be"):
            accountant.get_delta(wrong)
    with pytest.raises(TypeError, match="array of numbers"):
        accountant.get_epsilon("much")
    with pytest.raises(TypeError, match="noise_multiplier must be a number"):
        dp.GaussianDpEvent("1")
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        dp.EpsilonDeltaDpEvent(float("inf"))
    with pytest.raises(TypeError, match="whole number"):
        accountant.compose(STEP, 1.5)
    with pytest.raises(ValueError, match="at least 0"):
        accountant.compose(STEP, -1)
    with pytest.raises(TypeError, match="an event is one of"):
        accountant.compose(3)
    with pytest.raises(ValueError, match="no relation"):
        dp.PLDAccountant("ADD")
    with pytest.raises(ValueError, match="points"):
        accountant.get_trade_off(0)


def test_calibration_stays_within_the_target_and_near_it():
    def make(sigma):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(sigma)), 2000)

    sigma = dp.calibrate_noise_multiplier(make, 2.0, 1e-5)
    assert 2.0 * (1 - 1e-3) < dp.PLDAccountant().compose(make(sigma)).get_epsilon(1e-5) <= 2.0
    with pytest.raises(ValueError, match="epsilon must be a finite number above 0"):
        dp.calibrate_noise_multiplier(make, 0.0, 1e-5)
    with pytest.raises(ZeroDivisionError):
        dp.calibrate_noise_multiplier(lambda sigma: 1 / 0, 1.0, 1e-5)
    with pytest.raises(ValueError, match="LaplaceDpEvent|sampling"):
        dp.calibrate_noise_multiplier(lambda sigma: dp.PoissonSampledDpEvent(0.5, dp.LaplaceDpEvent(sigma)), 1.0, 1e-5)


def test_events_are_values_that_travel():
    event = dp.ComposedDpEvent([dp.SelfComposedDpEvent(STEP, np.int64(5)), dp.LaplaceDpEvent(np.float64(2.0))])
    assert eval(repr(event), vars(dp)) == event and hash(eval(repr(event), vars(dp))) == hash(event)
    assert dp.from_json(event.to_json()) == event
    assert pickle.loads(pickle.dumps(event)) == event
    costs = [dp.PLDAccountant().compose(form).get_epsilon(1e-5) for form in (event, repr(event), event.to_json())]
    assert costs[0] == costs[1] == costs[2]
    with pytest.raises(ValueError, match="no event that is known"):
        dp.from_dict({"class_name": "TreeDpEvent"})
    with pytest.raises(ValueError, match="class_name"):
        dp.from_json("3")


def test_accountants_are_copied_and_stored():
    accountant = dp.PLDAccountant("REPLACE_ONE").compose(STEP, 10)
    for other in (copy.deepcopy(accountant), pickle.loads(pickle.dumps(accountant))):
        assert other.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)
        assert other.neighboring_relation is accountant.neighboring_relation
        other.compose(STEP)
        assert other.event != accountant.event


def test_threads_share_an_accountant_and_do_not_wait_for_the_interpreter():
    accountant = dp.PLDAccountant().compose(STEP, 1000)
    expected = accountant.get_epsilon(1e-5)
    found = []
    threads = [threading.Thread(target=lambda: found.append(accountant.get_epsilon(1e-5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_events_of_dp_accounting_are_taken_as_they_are():
    theirs = pytest.importorskip("dp_accounting", reason="dp-accounting is not installed: nothing is compared with it")
    event = theirs.ComposedDpEvent(
        [theirs.SelfComposedDpEvent(theirs.PoissonSampledDpEvent(np.float64(0.01), theirs.GaussianDpEvent(1.0)), 1000), theirs.LaplaceDpEvent(2.0)]
    )
    relation = theirs.NeighboringRelation.ADD_OR_REMOVE_ONE
    ours = dp.PLDAccountant(relation).compose(event)
    pld = __import__("dp_accounting.pld", fromlist=["PLDAccountant"])
    upper = pld.PLDAccountant(relation).compose(event).get_epsilon(1e-5)
    lower, estimate, certified = ours.bounds(1e-5)
    assert lower <= upper and abs(upper - estimate) < 2e-3 and certified <= upper + 1e-3
    assert eval(ours.event, vars(theirs)) is not None
    unprotected = dp.PLDAccountant().compose(theirs.SelfComposedDpEvent(theirs.NonPrivateDpEvent(), 2))
    assert unprotected.get_epsilon(1e-5) == np.inf
