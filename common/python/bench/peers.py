#!/usr/bin/env python3
"""What the same questions cost here, with Google's dp_accounting and with Microsoft's prv_accountant: in turns, in one program, medians of five.

    pip install dp_pvi_accounting-*.whl dp-accounting prv-accountant
    python common/python/bench/peers.py [TURNS] > rows.md

Each peer has the cheapest setting whose own error is at most 1e-3: for the loss distributions the coarsest grid whose answer is that close to ours, for
prv_accountant ``eps_error=1e-3``, which is the error that it promises. What is measured is processor time of this program's one thread; every answer is made
anew.
"""

import functools
import os
import platform
import signal
import statistics
import sys
import time
import warnings
from importlib.metadata import version

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import dp_accounting as google
from dp_accounting import pld
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
from scipy import optimize

import dp_pvi_accounting as ours

ERROR = 1e-3
# Nobody waits longer for an answer, in seconds.
LIMIT = 120.0
DEFAULT_GRID = 1e-4
GRIDS = (1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)


def steps(library, sigma, rate, count):
    """Steps of DP-SGD as an event of either library."""
    return library.SelfComposedDpEvent(library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(sigma)), count)


def prv(mechanisms, delta):
    """An accountant for (sigma, rate, steps), ready to be asked."""
    parts = [PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=sigma) for sigma, rate, _ in mechanisms]
    return PRVAccountant(parts, eps_error=ERROR, delta_error=delta / 1000, max_self_compositions=[count for *_, count in mechanisms])


class Epsilon:
    """One certified epsilon."""

    def __init__(self, sigma, rate, count, delta):
        self.name = f"one certified ε: σ {sigma:g}, q {rate:g}, {count:,} steps, δ {delta:g}"
        self.run, self.delta = (sigma, rate, count), delta

    def ours(self):
        return ours.PLDAccountant().compose(steps(ours, *self.run)).get_epsilon(self.delta)

    def pld(self, grid):
        return pld.PLDAccountant(value_discretization_interval=grid).compose(steps(google, *self.run)).get_epsilon(self.delta)

    def prv(self):
        return prv([self.run], self.delta).compute_epsilon(self.delta, [self.run[2]])[2]


class Calibration:
    """The smallest noise for a target."""

    name = "calibration: the smallest σ for ε 2 at δ 1e-5, q 0.1, 2,000 steps"

    def ours(self):
        return ours.calibrate_noise_multiplier(lambda sigma: steps(ours, sigma, 0.1, 2000), 2.0, 1e-5)

    def pld(self, grid):
        fresh = functools.partial(pld.PLDAccountant, value_discretization_interval=grid)
        return google.calibrate_dp_mechanism(fresh, lambda sigma: steps(google, sigma, 0.1, 2000), 2.0, 1e-5, tol=ERROR)

    def prv(self):
        def gap(sigma):
            return prv([(sigma, 0.1, 2000)], 1e-5).compute_epsilon(1e-5, [2000])[2] - 2.0

        # The bracket is a gift: this library has no calibration.
        return optimize.brentq(gap, 6.0, 12.0, xtol=ERROR)


class Ledger:
    """A hundred rounds with different noise, and epsilon after each."""

    name = "ledger: 100 different rounds of 10 steps (σ 1 to 1.99, q 0.01), ε at δ 1e-5 after each"
    rounds = tuple((1.0 + k / 100, 0.01, 10) for k in range(100))

    @staticmethod
    def book(accountant, library):
        for sigma, rate, count in Ledger.rounds:
            last = accountant.compose(steps(library, sigma, rate, count)).get_epsilon(1e-5)
        return last

    def ours(self):
        return self.book(ours.PLDAccountant(), ours)

    def pld(self, grid):
        return self.book(pld.PLDAccountant(value_discretization_interval=grid), google)

    def prv(self):
        accountant = prv(self.rounds, 1e-5)
        for done in range(1, 101):
            last = accountant.compute_epsilon(1e-5, [count if k < done else 0 for k, (*_, count) in enumerate(self.rounds)])[2]
        return last


TASKS = (Epsilon(1.0, 0.01, 1000, 1e-5), Calibration(), Ledger(), Epsilon(2.0, 0.001, 100_000, 1e-6))


def late(*_):
    raise TimeoutError(f"no answer within {LIMIT:g} s")


def timed(question):
    """(answer, processor seconds); an answer that a library cannot give, or not within the limit, is none."""
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    start = time.thread_time()
    try:
        answer = question()
    except Exception as error:  # noqa: BLE001: whatever a peer raises is its answer
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        answer = None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return answer, time.thread_time() - start


def grid_of(task):
    """The coarsest grid whose answer is within the error of ours."""
    exact = task.ours()
    for grid in GRIDS:
        answer, _ = timed(lambda: task.pld(grid))
        if answer is not None and abs(answer - exact) <= ERROR:
            return grid
    raise SystemExit(f"{task.name}: no grid of {GRIDS} is within {ERROR} of {exact}")


def shown(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    warnings.simplefilter("ignore")
    names = ("dp-pvi-accounting", "dp-accounting", "prv-accountant", "numpy", "scipy")
    print(", ".join(f"{name} {version(name)}" for name in names) + f"; Python {platform.python_version()}")
    print(f"load before: {os.getloadavg()[0]:.2f} of {os.cpu_count()} processors; medians of {turns}, in turns; processor time\n")
    questions = {}
    for task in TASKS:
        cheapest = grid_of(task)
        questions[task, "ours"] = task.ours
        # As the library comes, where that is good enough, and the cheapest that is.
        for grid in sorted({cheapest, min(cheapest, DEFAULT_GRID)}, reverse=True):
            questions[task, f"PLD, grid {grid:g}"] = functools.partial(task.pld, grid)
        questions[task, f"PRV, eps_error {ERROR:g}"] = task.prv
        print(f"{task.name}: grid {cheapest:g}", file=sys.stderr, flush=True)
    found = {key: [] for key in questions}
    for turn in range(turns):
        for key, question in questions.items():
            # What cannot be answered once is not asked again.
            if turn == 0 or found[key][0][0] is not None:
                found[key].append(timed(question))
                print(f"{turn + 1}: {key[0].name}; {key[1]}: {found[key][-1]}", file=sys.stderr, flush=True)
    print("| question | tool | answer | median | fastest to slowest | against ours |\n|---|---|---|---|---|---|")
    for (task, tool), answers in found.items():
        if answers[0][0] is None:
            print(f"| {task.name} | {tool} | none within {LIMIT:g} s | | | |")
            continue
        times = sorted(seconds for _, seconds in answers)
        own = statistics.median(seconds for _, seconds in found[task, "ours"])
        ratio = "1" if tool == "ours" else f"{statistics.median(times) / own:.1f}"
        spread = f"{shown(times[0])} to {shown(times[-1])}"
        print(f"| {task.name} | {tool} | {answers[0][0]:.6f} | {shown(statistics.median(times))} | {spread} | {ratio} |")
    print(f"\nload after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
