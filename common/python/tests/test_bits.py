"""Python is told what Rust is told, bit for bit."""

import json
import os
import struct

import pytest

import dp_pvi_accounting as dp

FILE = os.environ.get("DP_PVI_BITS")


def rows(kind):
    if not FILE:
        pytest.skip("DP_PVI_BITS names no file of answers of the Rust crate: test.sh makes one, and compares")
    with open(FILE, encoding="utf-8") as file:
        found = [row for row in map(json.loads, file) if kind in row]
    assert found
    return found


def bits(values):
    return [struct.pack(">d", value).hex() for value in values]


@pytest.mark.parametrize("as_objects", [True, False])
def test_bounds_are_the_same_to_the_last_bit(as_objects):
    compared = 0
    for row in rows("events"):
        accountant = dp.PLDAccountant(row["relation"])
        accountant.compose(eval(row["events"], vars(dp)) if as_objects else row["events"])
        for answer, wanted in ((accountant.bounds(row["deltas"]), row["epsilon"]), (accountant.delta_bounds(row["epsilons"]), row["delta"])):
            for k, three in enumerate(wanted):
                assert bits(one[k] for one in answer) == three, row
                compared += 3
    assert compared >= 7 * 3 * 18


def test_calibration_is_the_same_to_the_last_bit():
    def make(sigma):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(sigma)), 2000)

    for row in rows("noise_multiplier"):
        assert bits([dp.calibrate_noise_multiplier(make, 2.0, 1e-5, row["relation"])]) == row["noise_multiplier"][2:]
