//! The accountant behind one question and one answer in JSON.
//!
//! [`answer`] reads a [`Question`] and says what its steps cost, or which noise a target needs, with the curves that a page draws. The program of this
//! crate reads the question from standard input and prints the answer. `deploy/calculator/build.sh` compiles it to WebAssembly and puts it into one
//! static page, which asks it in the browser: no question leaves the page.
//!
//! All numbers of an answer are bounds of [`dp_pvi_accounting`]; nothing is computed here.

use dp_pvi_accounting::calibrate::{self, Target};
use dp_pvi_accounting::unit::{Delta, Epsilon, InvalidUnit};
use dp_pvi_accounting::{AccountantError, Interval, Neighbours, Phase, Plan, Sampling};
use serde::{Deserialize, Serialize};

/// Points of a curve.
const POINTS: u32 = 48;
/// The rate of false alarms at which an attack is judged.
const FALSE_ALARMS: f64 = 0.01;

/// What is asked: Gaussian steps, and either their noise or the ε that they must not exceed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What neighbouring data sets differ by.
    pub relation: Neighbours,
    /// How the units of a step are chosen.
    pub sampling: Sampling,
    /// Number of steps; under random allocation, of epochs.
    pub steps: u64,
    /// Failure probability.
    pub delta: f64,
    /// Noise standard deviation over the clipping norm.
    pub sigma: Option<f64>,
    /// The ε for which the least `sigma` is found.
    pub epsilon: Option<f64>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The noise: the one of the question, or the least that was found, rounded up.
    pub sigma: f64,
    /// ε at the question's δ.
    pub epsilon: Interval,
    /// δ(0): how much more often than by guessing the best attack is right.
    pub advantage: Interval,
    /// The rate of false alarms at which `found` holds.
    pub false_alarms: f64,
    /// The largest share of true members that any attack finds at that rate.
    pub found: f64,
    /// Points (ε, upper bound of δ), from 0 to half as much again as the answer.
    pub profile: Vec<(f64, f64)>,
    /// Points (false alarms, members that no attack with that rate finds, at least).
    pub trade_off: Vec<(f64, f64)>,
}

/// A question without an answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// Text that is no question.
    #[error("not a question: {0}")]
    Json(#[from] serde_json::Error),
    /// A number out of range.
    #[error(transparent)]
    Number(#[from] InvalidUnit),
    /// No bound, or a target out of reach.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// Both σ and ε, or neither.
    #[error("give either sigma or epsilon")]
    Unknown,
}

/// The answer to a question in JSON.
///
/// # Errors
/// Text that is no question, a number out of range, steps without a bound, or a target that no noise reaches.
pub fn answer(question: &str) -> Result<Answer, QuestionError> {
    let Question { relation, sampling, steps, delta, sigma, epsilon } = serde_json::from_str(question)?;
    let at = Delta::new(delta)?;
    let sigma = match (sigma, epsilon) {
        (Some(sigma), None) => sigma,
        (None, Some(epsilon)) => calibrate::sigma(relation, sampling, steps, Target { epsilon: Epsilon::new(epsilon)?, delta: at })?.upper,
        _ => return Err(QuestionError::Unknown),
    };
    let plan = Plan::of(relation, Phase::gaussian(sigma, sampling, steps))?;
    let cost = plan.epsilon(at);
    let end = cost.upper.clamp(1e-3, 1e3) * 1.5;
    let epsilons = (0..=POINTS).map(|i| end * f64::from(i) / f64::from(POINTS));
    let profile =
        epsilons.map(|epsilon| Ok((epsilon, plan.delta(Epsilon::new(epsilon)?).upper))).collect::<Result<Vec<_>, InvalidUnit>>()?;
    let rates = (0..=POINTS).map(|i| f64::from(i) / f64::from(POINTS));
    let trade_off = rates.map(|rate| (rate, Plan::missed(&profile, rate))).collect();
    Ok(Answer {
        sigma,
        epsilon: cost,
        advantage: plan.advantage(),
        false_alarms: FALSE_ALARMS,
        found: 1.0 - Plan::missed(&profile, FALSE_ALARMS),
        profile,
        trade_off,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(question: &str) -> String {
        answer(question).map_or_else(|error| error.to_string(), |answer| format!("{answer:?}"))
    }

    #[test]
    fn noise_and_epsilon_answer_each_other() {
        let text = r#"{"relation": "add_remove", "sampling": {"poisson": 0.01}, "steps": 1000, "delta": 1e-5, "sigma": 1.0}"#;
        let there = answer(text).unwrap_or_else(|error| panic!("{error}"));
        let back = text.replace(r#""sigma": 1.0"#, &format!(r#""epsilon": {}"#, there.epsilon.upper));
        let back = answer(&back).unwrap_or_else(|error| panic!("{error}"));
        assert!((back.sigma - 1.0).abs() < 1e-4 && back.epsilon.upper <= there.epsilon.upper, "{back:?}");
        assert_eq!(there.profile.len(), 49);
        assert!(there.profile.windows(2).all(|pair| pair[1].0 > pair[0].0 && pair[1].1 <= pair[0].1), "{:?}", there.profile);
        assert!(there.trade_off.windows(2).all(|pair| pair[1].1 <= pair[0].1 + 1e-9), "{:?}", there.trade_off);
        assert!(there.found > there.false_alarms && there.found < 1.0);
    }

    #[test]
    fn every_sampler_and_relation_answers_or_says_why_not() {
        for relation in ["add_remove", "zero_out", "replace_one"] {
            for sampling in [r#""none""#, r#"{"poisson": 0.1}"#, r#"{"without_replacement": 0.1}"#, r#"{"random_allocation": 10}"#] {
                let text = format!(r#"{{"relation": "{relation}", "sampling": {sampling}, "steps": 3, "delta": 1e-5, "sigma": 2.0}}"#);
                match answer(&text) {
                    Ok(answer) => {
                        assert!(answer.epsilon.lower <= answer.epsilon.upper && answer.epsilon.upper < 10.0, "{text}: {answer:?}")
                    }
                    Err(error) => assert!(sampling.contains("without") && relation == "zero_out", "{text}: {error}"),
                }
            }
        }
    }

    #[test]
    fn what_is_no_question_is_named() {
        let good = r#"{"relation": "add_remove", "sampling": "none", "steps": 1, "delta": 1e-5, "sigma": 1.0}"#;
        for (from, to, word) in [
            (r#""sigma": 1.0"#, r#""sigma": 1.0, "epsilon": 1.0"#, "either"),
            (r#", "sigma": 1.0"#, "", "either"),
            ("1e-5", "2.0", "delta"),
            ("1.0", "-1.0", "sigma"),
            ("none", "all", "variant"),
            ("steps", "rounds", "rounds"),
            (r#""steps": 1"#, r#""steps": 0"#, "epsilon"),
        ] {
            let text = said(&good.replace(from, to));
            assert!(text.contains(word), "{from} -> {to}: {text}");
        }
    }
}
