#!/usr/bin/env python3
"""What a step of DP-SGD costs here, with NumPy and with JAX: in turns, on one core, medians.

    pip install numpy jax
    cargo bench -p dp-pvi-inference --bench dp_sgd_step --no-run        # prints the program's path
    python common/python/bench/steps.py PROGRAM [TURNS] > rows.md

The step is that of the bench: mean-field logistic regression, a Poisson sample of 200 expected from 3,907 rows of 105 columns with 14 entries each, expectations of
the logit's likelihood, gradients of means and scales, their norms, the clip, the sum, noise on 210 coordinates. The peers take what makes them fast: they
compute norms without forming gradients, use a quadrature of 20 nodes (ours has 1e-12), noise in floating point and a generator that is not cryptographic. JAX
compiles its step for batches of 256 rows, of which those outside the sample have weight 0.
"""

import os
import platform
import re
import statistics
import subprocess
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np

try:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
except ImportError:
    jax = None

ROWS, D, BATCH, PADDED = 3907, 105, 200, 256
CATEGORIES = (8, 16, 7, 14, 6, 5, 2, 41)
CLIP, NOISE, WEIGHT, VARIANCE = 2.25, 4.0, 1.0, 0.02
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
STEPS = 300


def table():
    """Columns, values and labels with the shape of the Adult encoding."""
    rng = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(CATEGORIES)[:-1]])
    levels = np.stack([(rng.random(ROWS) ** 2 * size).astype(np.int64) for size in CATEGORIES], axis=1) + starts
    numbers = np.tile(np.arange(sum(CATEGORIES), D), (ROWS, 1))
    values = np.concatenate([np.ones((ROWS, len(CATEGORIES))), rng.random((ROWS, 5)) - 0.5, np.ones((ROWS, 1))], axis=1)
    return np.concatenate([levels, numbers], axis=1), values, (rng.random(ROWS) < 0.25).astype(np.float64)


COLUMNS, VALUES, LABELS = table()
MEAN, SPREAD = 0.01 * (np.arange(D) % 7), np.full(D, VARIANCE)


class NumPy:
    """Sparse rows as arrays of columns and values."""

    name = f"NumPy {np.__version__}"

    def __init__(self):
        self.rng = np.random.default_rng(2)

    def step(self):
        sample = np.flatnonzero(self.rng.random(ROWS) < BATCH / ROWS)
        columns, x, y = COLUMNS[sample], VALUES[sample], LABELS[sample]
        squares = x * x
        mean, variance = (x * MEAN[columns]).sum(1), (squares * SPREAD[columns]).sum(1)
        sigmoid = 1.0 / (1.0 + np.exp(-(mean[:, None] + np.sqrt(variance)[:, None] * NODES)))
        residual, curvature = y - sigmoid @ WEIGHTS, -WEIGHT * ((sigmoid * (1.0 - sigmoid)) @ WEIGHTS)
        norm = np.sqrt(residual**2 * squares.sum(1) + curvature**2 * (squares * squares).sum(1))
        factor = np.minimum(1.0, CLIP / norm)
        by_mean = np.bincount(columns.ravel(), ((factor * residual)[:, None] * x).ravel(), D)
        by_scale = np.bincount(columns.ravel(), ((factor * curvature)[:, None] * squares).ravel(), D)
        return np.concatenate([by_mean, by_scale]) + self.rng.normal(0.0, NOISE * CLIP, 2 * D)


class Jax:
    """Dense rows, one compiled function; the batch has room for the largest samples."""

    def __init__(self):
        self.name = f"JAX {jax.__version__}"
        dense = np.zeros((ROWS, D))
        np.put_along_axis(dense, COLUMNS, VALUES, axis=1)
        dense, labels, nodes, weights = (jnp.asarray(a) for a in (dense, LABELS, NODES, WEIGHTS))
        mean_of, variance_of = jnp.asarray(MEAN), jnp.asarray(SPREAD)

        @jax.jit
        def step(key):
            coins, noise = jax.random.split(key)
            chosen = jax.random.uniform(coins, (ROWS,)) < BATCH / ROWS
            sample = jnp.nonzero(chosen, size=PADDED, fill_value=0)[0]
            inside = jnp.arange(PADDED) < chosen.sum()
            x, y = dense[sample], labels[sample]
            squares = x * x
            mean, variance = x @ mean_of, squares @ variance_of
            sigmoid = jax.nn.sigmoid(mean[:, None] + jnp.sqrt(variance)[:, None] * nodes)
            residual, curvature = y - sigmoid @ weights, -WEIGHT * ((sigmoid * (1.0 - sigmoid)) @ weights)
            norm = jnp.sqrt(residual**2 * squares.sum(1) + curvature**2 * (squares * squares).sum(1))
            factor = jnp.where(inside, jnp.minimum(1.0, CLIP / norm), 0.0)
            total = jnp.concatenate([(factor * residual) @ x, (factor * curvature) @ squares])
            return total + NOISE * CLIP * jax.random.normal(noise, (2 * D,))

        self.function, self.keys = step, jax.random.split(jax.random.key(3), STEPS)
        self.next = 0

    def step(self):
        self.next = (self.next + 1) % STEPS
        return self.function(self.keys[self.next]).block_until_ready()


def microseconds(step):
    """Median of so many steps."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def ours(program):
    """The bench's median of a step with its coins and exact noise."""
    out = subprocess.run([program, "--bench", "::step"], capture_output=True, text=True, check=True).stdout
    row = next(line for line in out.splitlines() if re.search(r"\bstep\s+\d", line))
    value, unit = re.findall(r"([\d.]+) (ns|µs|ms)", row)[2]
    return float(value) * {"ns": 1e-3, "µs": 1.0, "ms": 1e3}[unit]


def main():
    program, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    peers = [NumPy()] + ([Jax()] if jax else [])
    for peer in peers:
        peer.step()
    times = {name: [] for name in ["this project", *(peer.name for peer in peers)]}
    for _ in range(turns):
        times["this project"].append(ours(program))
        for peer in peers:
            times[peer.name].append(microseconds(peer.step))
    print(f"Python {platform.python_version()}, {platform.machine()}; medians of {turns} turns, in µs (fastest to slowest turn).\n")
    print("| program | a step |\n|---|---|")
    for name, found in times.items():
        print(f"| {name} | {statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f}) |")


main()
