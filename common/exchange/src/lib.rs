//! A file of events of several kinds becomes a plan, and a plan becomes such a file.
//!
//! Events are written as the Python library `dp_accounting` prints them, or as JSON objects with the same names and fields:
//!
//! ```text
//! ComposedDpEvent(events=[SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.01,
//!     event=GaussianDpEvent(noise_multiplier=1.0)), count=1000), LaplaceDpEvent(noise_multiplier=2.0)])
//! {"class_name": "SelfComposedDpEvent", "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 4.0}, "count": 20}
//! ```
//!
//! Noise multipliers are noise over the norm of one record's term there as here, whatever the relation. JSON also takes a privacy measure of OpenDP with its
//! loss, and lists. What has no proved bound here is refused by its name.
//!
//! ```rust
//! use dp_pvi_exchange::{printed, read_plan, written};
//! use dp_pvi_accounting::Neighbours;
//!
//! let text = "SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.01, event=GaussianDpEvent(noise_multiplier=1.0)), count=1000)";
//! let plan = read_plan(text, Neighbours::AddRemove)?;
//! let again = written(&plan).map(|event| printed(&event));
//! assert_eq!(again.as_deref(), Some(format!("ComposedDpEvent(events=[{text}])").as_str()));
//! let refused = read_plan("PoissonSampledDpEvent(0.1, LaplaceDpEvent(1.0))", Neighbours::AddRemove).unwrap_err();
//! assert!(refused.to_string().starts_with("PoissonSampledDpEvent: no proved bound"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod calculator;
mod json;
#[cfg(test)]
mod tests;
mod text;

pub use json::unambiguous;

use serde_json::{Map, Value, json};

use dp_pvi_accounting::{AccountantError, Delta, Epsilon, Mechanism, Neighbours, Phase, Plan, Sampling};

/// Most events inside each other.
const DEEPEST: usize = 64;
/// Most phases of one file.
const MOST: usize = 100_000;
/// The field of a class's name.
const CLASS: &str = "class_name";
const MODULE: &str = "module_name";
/// OpenDP's measure of (ε, δ).
const APPROXIMATE: &str = "Approximate<MaxDivergence>";

/// A file of events that cannot be accounted.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// Neither of the two forms.
    #[error(
        "line {line}, column {column} of the events: {what}; write them as dp_accounting prints them, or as JSON objects with class_name"
    )]
    Text {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Not JSON.
    #[error("the events are no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON with a word that Python writes for a number.
    #[error("the events are no JSON: {0}; JSON has only finite numbers, no Infinity and no NaN")]
    NotFinite(#[source] serde_json::Error),
    /// A value where an event should be.
    #[error("an event is an object with class_name, or with measure and loss, or a list of these; here is something else")]
    NoEvent,
    /// A field.
    #[error("{class} needs {field}: {what}")]
    Field {
        /// Of which event.
        class: String,
        /// Which.
        field: &'static str,
        /// What it should be.
        what: &'static str,
    },
    /// No proved bound.
    #[error("{class}: {why}")]
    Unsupported {
        /// Which event.
        class: String,
        /// Why not.
        why: &'static str,
    },
    /// A number out of range, or a pair without a bound.
    #[error("{class}: {error}")]
    Accountant {
        /// Which event.
        class: String,
        /// Why not.
        #[source]
        error: AccountantError,
    },
    /// Too deep or too long.
    #[error("the events are too many: at most {MOST} kinds of steps, at most {DEEPEST} inside each other")]
    TooMany,
}

impl EventsError {
    fn json(error: serde_json::Error, text: &str) -> Self {
        let not_finite = error.is_syntax() && ["Infinity", "NaN"].iter().any(|word| text.contains(word));
        if not_finite { Self::NotFinite(error) } else { Self::Json(error) }
    }
}

/// The plan of the events of a file under a relation.
///
/// # Errors
/// Neither form, a field that is missing or out of range, or an event without a proved bound, by its name.
pub fn read_plan(text: &str, relation: Neighbours) -> Result<Plan, EventsError> {
    // Editors of some systems put a mark before a text.
    let text = text.trim_start_matches('\u{feff}');
    let value = match text.trim_start().as_bytes().first() {
        Some(b'{' | b'[') => unambiguous(text).map_err(|error| EventsError::json(error, text))?,
        _ => text::value(text)?,
    };
    let mut reader = Reader { plan: Plan::new(relation), phases: 0 };
    reader.event(&value, 1, 0)?;
    Ok(reader.plan)
}

struct Reader {
    plan: Plan,
    phases: usize,
}

impl Reader {
    fn event(&mut self, value: &Value, times: u64, depth: usize) -> Result<(), EventsError> {
        if depth >= DEEPEST {
            return Err(EventsError::TooMany);
        }
        if let Some(list) = value.as_array() {
            return list.iter().try_for_each(|event| self.event(event, times, depth + 1));
        }
        let Some(fields) = value.as_object() else { return Err(EventsError::NoEvent) };
        if fields.contains_key("measure") && !fields.contains_key(CLASS) {
            return self.measure(fields, times);
        }
        let Some(class) = fields.get(CLASS).and_then(Value::as_str) else { return Err(EventsError::NoEvent) };
        let fields = Fields { class, fields };
        fields.are_known()?;
        match class {
            "NoOpDpEvent" => Ok(()),
            "ComposedDpEvent" => {
                let events = fields.get("events")?.as_array().ok_or_else(|| fields.wrong("events", "a list of events"))?;
                events.iter().try_for_each(|event| self.event(event, times, depth + 1))
            }
            "SelfComposedDpEvent" => {
                let times = times.checked_mul(fields.count("count")?).ok_or(EventsError::TooMany)?;
                self.event(fields.get("event")?, times, depth + 1)
            }
            "PoissonSampledDpEvent" => {
                let (rate, mechanism) = (fields.number("sampling_probability")?, self.mechanism(&fields.inner()?)?);
                // At a rate of 0 nothing is ever drawn.
                if rate == 0.0 { Ok(()) } else { self.append(class, mechanism, Sampling::Poisson(rate), times) }
            }
            "SampledWithoutReplacementDpEvent" => {
                let (all, batch) = (fields.count("source_dataset_size")?, fields.count("sample_size")?);
                if batch == 0 || batch > all {
                    return Err(fields.wrong("sample_size", "at least 1 and at most source_dataset_size"));
                }
                let mechanism = self.mechanism(&fields.inner()?)?;
                #[allow(clippy::cast_precision_loss, reason = "rounded up")]
                let rate = (batch as f64 / all as f64 * (1.0 + 4.0 * f64::EPSILON)).min(1.0);
                self.append(class, mechanism, Sampling::WithoutReplacement(rate), times)
            }
            "RandomAllocationDpEvent" => {
                let (batches, mechanism) = (fields.count("num_batches")?, self.mechanism(&fields.inner()?)?);
                self.append(class, mechanism, Sampling::RandomAllocation(batches), times)
            }
            _ => {
                let mechanism = self.mechanism(&fields)?;
                self.append(class, mechanism, Sampling::None, times)
            }
        }
    }

    /// A release on the units that a sampler chose, or on all.
    fn mechanism(&self, fields: &Fields<'_>) -> Result<Mechanism, EventsError> {
        match fields.class {
            "GaussianDpEvent" => Ok(Mechanism::Gaussian { sigma: fields.number("noise_multiplier")? }),
            "LaplaceDpEvent" => Ok(Mechanism::Laplace { scale: fields.number("noise_multiplier")? }),
            "UnivariateDiscreteGaussianDpEvent" => {
                Ok(Mechanism::DiscreteGaussian { scale: fields.number("scale")?, sensitivity: fields.count("sensitivity")? })
            }
            "DiscreteGaussianDpEvent" => {
                Err(fields
                    .unsupported("its noise is on a vector, of which only one number is bounded here: UnivariateDiscreteGaussianDpEvent"))
            }
            "DiscreteLaplaceDpEvent" => {
                let parameter = fields.number("noise_parameter")?;
                if parameter <= 0.0 {
                    return Err(fields.wrong("noise_parameter", "a number above 0"));
                }
                let factor = if self.plan.relation() == Neighbours::ReplaceOne { 2.0 } else { 1.0 };
                #[allow(clippy::cast_precision_loss, reason = "rounded up")]
                let sensitivity = fields.count("sensitivity")? as f64;
                Ok(pure(factor * parameter * sensitivity))
            }
            "RandomizedResponseDpEvent" => self.randomised_response(fields),
            "ZCDpEvent" => match fields.fields.get("xi").map(Value::as_f64) {
                None | Some(Some(0.0)) => Ok(Mechanism::Zcdp { rho: fields.number("rho")? }),
                _ => Err(fields.unsupported("only xi = 0 has a bound here")),
            },
            "EpsilonDeltaDpEvent" => Ok(Mechanism::Approximate { epsilon: fields.number("epsilon")?, delta: fields.number("delta")? }),
            "NonPrivateDpEvent" => Err(fields.unsupported("a release without protection: epsilon is infinite")),
            "UnsupportedDpEvent" => Err(fields.unsupported("nothing is known of it")),
            "PoissonSampledDpEvent"
            | "SampledWithoutReplacementDpEvent"
            | "RandomAllocationDpEvent"
            | "SelfComposedDpEvent"
            | "ComposedDpEvent"
            | "NoOpDpEvent" => Err(fields.unsupported("a sampler here goes around one release; put the sampler inside")),
            _ => Err(fields.unsupported("no proved bound for this kind of event is implemented")),
        }
    }

    /// One of k answers, which is drawn afresh from all of them with probability p: ln(1 + k(1 − p)/p) of pure differential privacy (Warner 1965).
    fn randomised_response(&self, fields: &Fields<'_>) -> Result<Mechanism, EventsError> {
        if self.plan.relation() == Neighbours::AddRemove {
            return Err(fields.unsupported("every record answers, so that their number is public: ask under replace-one or zero-out"));
        }
        let (drawn, answers) = (fields.number("noise_parameter")?, fields.count("num_buckets")?);
        if !(0.0..=1.0).contains(&drawn) {
            return Err(fields.wrong("noise_parameter", "a probability"));
        }
        match answers {
            0 => Err(fields.wrong("num_buckets", "a whole number that is at least 1")),
            1 => Ok(pure(0.0)),
            _ if drawn == 0.0 => Err(fields.unsupported("a release without protection: epsilon is infinite")),
            #[allow(clippy::cast_precision_loss, reason = "rounded up")]
            _ => Ok(pure((answers as f64 * (1.0 - drawn) / drawn).ln_1p())),
        }
    }

    /// A measure of OpenDP with its loss, by the name of its type or as it prints itself.
    fn measure(&mut self, fields: &Map<String, Value>, times: u64) -> Result<(), EventsError> {
        let class = fields.get("measure").and_then(Value::as_str).ok_or(EventsError::NoEvent)?;
        let fields = Fields { class, fields };
        if fields.fields.len() > 2 {
            return Err(fields.unsupported("it has a field that is not known here"));
        }
        let pair = || {
            let loss = fields.get("loss")?.as_array().map(Vec::as_slice);
            let Some([first, delta]) = loss else { return Err(fields.wrong("loss", "[loss, delta]")) };
            first.as_f64().zip(delta.as_f64()).ok_or_else(|| fields.wrong("loss", "[loss, delta]"))
        };
        let mut release = |mechanism: Mechanism| self.append(class, mechanism, Sampling::None, times);
        match class {
            "MaxDivergence" => release(Mechanism::Approximate { epsilon: fields.number("loss")?, delta: 0.0 }),
            APPROXIMATE | "Approximate(MaxDivergence)" => {
                let (epsilon, delta) = pair()?;
                release(Mechanism::Approximate { epsilon, delta })
            }
            "ZeroConcentratedDivergence" => release(Mechanism::Zcdp { rho: fields.number("loss")? }),
            // But for an event of probability delta it is rho-zCDP.
            "Approximate<ZeroConcentratedDivergence>" | "Approximate(ZeroConcentratedDivergence)" => {
                let (rho, delta) = pair()?;
                release(Mechanism::Zcdp { rho })?;
                release(Mechanism::Approximate { epsilon: 0.0, delta })
            }
            _ => Err(fields.unsupported("no proved bound for this measure is implemented")),
        }
    }

    fn append(&mut self, class: &str, mechanism: Mechanism, sampling: Sampling, steps: u64) -> Result<(), EventsError> {
        self.phases += 1;
        if self.phases > MOST {
            return Err(EventsError::TooMany);
        }
        self.plan.append(Phase { mechanism, sampling, steps }).map_err(|error| EventsError::Accountant { class: class.to_owned(), error })
    }
}

/// Pure differential privacy, rounded up.
fn pure(epsilon: f64) -> Mechanism {
    Mechanism::Approximate { epsilon: epsilon * (1.0 + 16.0 * f64::EPSILON), delta: 0.0 }
}

/// An event's fields.
struct Fields<'a> {
    class: &'a str,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn get(&self, field: &'static str) -> Result<&'a Value, EventsError> {
        self.fields.get(field).ok_or_else(|| self.wrong(field, "it is missing"))
    }

    fn number(&self, field: &'static str) -> Result<f64, EventsError> {
        let value = self.get(field)?.as_f64().filter(|value| value.is_finite());
        value.ok_or_else(|| self.wrong(field, "a finite number"))
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
    fn count(&self, field: &'static str) -> Result<u64, EventsError> {
        let value = self.get(field)?;
        let whole = |v: f64| ((0.0..9e15).contains(&v) && v.fract() == 0.0).then_some(v as u64);
        value.as_u64().or_else(|| value.as_f64().and_then(whole)).ok_or_else(|| self.wrong(field, "a whole number that is at least 0"))
    }

    /// The event inside a sampler.
    fn inner(&self) -> Result<Self, EventsError> {
        let fields = self.get("event")?.as_object().ok_or(EventsError::NoEvent)?;
        let class = fields.get(CLASS).and_then(Value::as_str).ok_or(EventsError::NoEvent)?;
        let inner = Fields { class, fields };
        inner.are_known()?;
        Ok(inner)
    }

    /// A field that is not known could make the event another one. Of an event that is not known, which is refused by its name, none is.
    fn are_known(&self) -> Result<(), EventsError> {
        let (names, all) = (text::names(self.class), [CLASS, MODULE]);
        let known = |name: &String| names.contains(&name.as_str()) || all.contains(&name.as_str());
        if names.is_empty() || self.fields.keys().all(known) {
            Ok(())
        } else {
            Err(self.unsupported("it has a field that is not known here"))
        }
    }

    fn wrong(&self, field: &'static str, what: &'static str) -> EventsError {
        EventsError::Field { class: self.class.to_owned(), field, what }
    }

    fn unsupported(&self, why: &'static str) -> EventsError {
        EventsError::Unsupported { class: self.class.to_owned(), why }
    }
}

/// A plan as an event of `dp_accounting`, in JSON, with the fields of that library's named tuples. `None`: it has steps for which that has no event.
#[must_use]
pub fn written(plan: &Plan) -> Option<Value> {
    let mut events = Vec::new();
    for phase in plan.phases() {
        let release = match phase.mechanism {
            Mechanism::Gaussian { sigma } => event("GaussianDpEvent", json!({"noise_multiplier": sigma})),
            Mechanism::Laplace { scale } => event("LaplaceDpEvent", json!({"noise_multiplier": scale})),
            Mechanism::Zcdp { rho } => event("ZCDpEvent", json!({"rho": rho, "xi": 0.0})),
            Mechanism::DiscreteGaussian { .. } | Mechanism::Approximate { .. } => return None,
        };
        let step = match phase.sampling {
            Sampling::None => release,
            Sampling::Poisson(rate) => event("PoissonSampledDpEvent", json!({"sampling_probability": rate, "event": release})),
            // Of a batch only its share of the data is known here.
            Sampling::WithoutReplacement(_) | Sampling::ShuffledPasses(_) | Sampling::RandomAllocation(_) => return None,
        };
        let count = phase.steps;
        events.push(if count == 1 { step } else { event("SelfComposedDpEvent", json!({"event": step, "count": count})) });
    }
    Some(event("ComposedDpEvent", json!({"events": events})))
}

/// An object of a class of `dp_accounting`.
fn event(class: &str, mut fields: Value) -> Value {
    fields["module_name"] = json!("dp_accounting.dp_event");
    fields[CLASS] = json!(class);
    fields
}

/// An event of [`written`] as `dp_accounting` prints it.
#[must_use]
pub fn printed(event: &Value) -> String {
    match event {
        Value::Array(events) => format!("[{}]", events.iter().map(printed).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let class = fields.get(CLASS).and_then(Value::as_str).unwrap_or_default();
            let field = |name: &&str| Some(format!("{name}={}", printed(fields.get(*name)?)));
            format!("{class}({})", text::names(class).iter().filter_map(field).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

/// (ε, δ) as a loss under a privacy measure of OpenDP, in JSON.
#[must_use]
pub fn measure(epsilon: Epsilon, delta: Delta) -> Value {
    json!({"measure": APPROXIMATE, "loss": [epsilon.get(), delta.get()]})
}
