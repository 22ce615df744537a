//! The accountant of `dp-pvi-accounting` for Python: what the package `dp_pvi_accounting` calls, and nothing that a user calls himself.
//!
//! Events come as text, as their classes print themselves ([`dp_pvi_exchange`]); so the objects of Google's `dp_accounting` are taken as well
//! as our own. Numbers come and go as lists; shapes and numpy are the business of the Python side.
//!
//! While anything is computed the interpreter's lock is released. A plan has a lock of its own, so that two threads may ask the same one.

use pyo3::pymodule;

/// Certified bounds on the privacy loss of steps that are fixed beforehand.
#[pymodule]
mod _native {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::sync::Mutex;

    use dp_pvi_accounting::calibrate::{self, Target};
    use dp_pvi_accounting::{AccountantError, Delta, Epsilon, Interval, Neighbours, Plan};
    use dp_pvi_exchange::{printed, read_plan, written};
    use pyo3::exceptions::{PyRuntimeError, PyValueError};
    use pyo3::prelude::*;

    /// (lower, estimate, upper).
    type Triple = (f64, f64, f64);

    /// Points at which a trade-off curve may be asked for.
    const MOST_POINTS: u32 = 100_000;

    fn triple(interval: Interval) -> Triple {
        (interval.lower, interval.estimate, interval.upper)
    }

    fn refused(error: impl std::fmt::Display) -> PyErr {
        PyValueError::new_err(error.to_string())
    }

    /// A number that is not what it should be, with the number.
    fn out_of_range(error: impl std::fmt::Display, value: f64) -> PyErr {
        PyValueError::new_err(format!("{error}, and this is {value}"))
    }

    fn neighbours(relation: &str) -> PyResult<Neighbours> {
        match relation {
            "ADD_OR_REMOVE_ONE" => Ok(Neighbours::AddRemove),
            "REPLACE_ONE" => Ok(Neighbours::ReplaceOne),
            "REPLACE_SPECIAL" => Ok(Neighbours::ZeroOut),
            other => Err(PyValueError::new_err(format!("{other} is no relation: take ADD_OR_REMOVE_ONE, REPLACE_ONE or REPLACE_SPECIAL"))),
        }
    }

    /// A plan, and what it has answered since the last steps: a second reading would be as certified and have other last digits.
    struct Answered {
        plan: Plan,
        epsilons: HashMap<u64, Triple>,
        deltas: HashMap<u64, Triple>,
    }

    impl Answered {
        fn new(plan: Plan) -> Self {
            Self { plan, epsilons: HashMap::new(), deltas: HashMap::new() }
        }
    }

    /// Steps under one relation.
    #[pyclass(frozen, name = "Plan", module = "dp_pvi_accounting._native")]
    struct Steps(Mutex<Answered>);

    impl Steps {
        /// Asks the plan without the interpreter's lock.
        fn ask<T: Send>(&self, py: Python<'_>, question: impl FnOnce(&mut Answered) -> T + Send) -> PyResult<T> {
            py.detach(|| self.0.lock().map(|mut all| question(&mut all)).ok())
                .ok_or_else(|| PyRuntimeError::new_err("an earlier question to this accountant failed: make a new one and compose again"))
        }
    }

    #[pymethods]
    impl Steps {
        #[new]
        fn new(relation: &str) -> PyResult<Self> {
            Ok(Self(Mutex::new(Answered::new(Plan::new(neighbours(relation)?)))))
        }

        /// Adds the steps of a text of events; all of them, or none where one is refused.
        fn compose(&self, py: Python<'_>, events: &str) -> PyResult<()> {
            let added = self.ask(py, |all| {
                let more = read_plan(events, all.plan.relation()).map_err(|error| error.to_string())?;
                all.epsilons.clear();
                all.deltas.clear();
                more.phases().iter().try_for_each(|phase| all.plan.append(*phase)).map_err(|error| error.to_string())
            })?;
            added.map_err(PyValueError::new_err)
        }

        /// (lower, estimate, upper) of ε at each δ.
        fn epsilon(&self, py: Python<'_>, deltas: Vec<f64>) -> PyResult<Vec<Triple>> {
            let deltas: Vec<Delta> =
                deltas.into_iter().map(|value| Delta::new(value).map_err(|e| out_of_range(e, value))).collect::<PyResult<_>>()?;
            self.ask(py, |Answered { plan, epsilons, .. }| {
                let mut answer = |delta: Delta| *epsilons.entry(delta.get().to_bits()).or_insert_with(|| triple(plan.epsilon(delta)));
                deltas.into_iter().map(&mut answer).collect()
            })
        }

        /// (lower, estimate, upper) of δ at each ε.
        fn delta(&self, py: Python<'_>, epsilons: Vec<f64>) -> PyResult<Vec<Triple>> {
            let finite = |value: f64| Epsilon::new(value).ok().filter(|_| value.is_finite());
            let epsilons: Vec<Epsilon> = epsilons
                .into_iter()
                .map(|value| finite(value).ok_or_else(|| out_of_range("epsilon must be a finite number that is at least 0", value)))
                .collect::<PyResult<_>>()?;
            self.ask(py, |Answered { plan, deltas, .. }| {
                let mut answer = |epsilon: Epsilon| *deltas.entry(epsilon.get().to_bits()).or_insert_with(|| triple(plan.delta(epsilon)));
                epsilons.into_iter().map(&mut answer).collect()
            })
        }

        /// Certified upper bounds on an attack's true positive rate at each false positive rate.
        fn true_positive_rate(&self, py: Python<'_>, rates: Vec<f64>) -> PyResult<Vec<f64>> {
            if let Some(&value) = rates.iter().find(|rate| !(0.0..=1.0).contains(*rate)) {
                return Err(out_of_range("a false positive rate must lie between 0 and 1", value));
            }
            self.ask(py, |all| rates.into_iter().map(|rate| all.plan.true_positive_rate(rate)).collect())
        }

        /// (false positive rate, smallest false negative rate) at so many equal distances, estimated.
        fn trade_off(&self, py: Python<'_>, points: u32) -> PyResult<Vec<(f64, f64)>> {
            if !(1..=MOST_POINTS).contains(&points) {
                return Err(PyValueError::new_err(format!(
                    "the number of points must lie between 1 and {MOST_POINTS}, and this is {points}"
                )));
            }
            self.ask(py, |all| all.plan.trade_off(points))
        }

        /// The steps in the words of `dp_accounting`; none where it has no event for one of them.
        fn event(&self, py: Python<'_>) -> PyResult<Option<String>> {
            self.ask(py, |all| written(&all.plan).as_ref().map(printed))
        }

        /// Canonical bytes: equal plans have equal bytes.
        fn to_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
            self.ask(py, |all| all.plan.to_bytes())
        }

        /// Reads canonical bytes.
        #[staticmethod]
        fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
            Ok(Self(Mutex::new(Answered::new(Plan::from_bytes(bytes).map_err(refused)?))))
        }
    }

    /// (lower, estimate, upper) of the smallest noise multiplier for which the events that `make` returns for it stay within ε at δ.
    #[pyfunction]
    fn noise_multiplier(py: Python<'_>, make: Py<PyAny>, relation: &str, epsilon: f64, delta: f64) -> PyResult<Triple> {
        let relation = neighbours(relation)?;
        let target = Target {
            epsilon: Epsilon::new(epsilon).map_err(|e| out_of_range(e, epsilon))?,
            delta: Delta::new(delta).map_err(|e| out_of_range(e, delta))?,
        };
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(out_of_range("epsilon must be a finite number above 0", epsilon));
        }
        py.detach(|| {
            // What Python says is wrong; the search only hears that something is.
            let said = RefCell::new(None);
            let found = calibrate::sigma_of(target, |sigma| {
                let events = Python::attach(|py| make.call1(py, (sigma,))?.extract::<String>(py));
                let plan = events.and_then(|events| read_plan(&events, relation).map_err(refused));
                plan.map_err(|error| {
                    said.replace(Some(error));
                    AccountantError::OutOfReach
                })
            });
            match (said.into_inner(), found) {
                (Some(error), _) => Err(error),
                (None, found) => found.map(triple).map_err(refused),
            }
        })
    }
}
