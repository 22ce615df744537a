//! Bayesian survival regression (`family = "survival-regression"`): proportional hazards λ_b e^{xᵀβ} with a baseline hazard λ_b that is constant on every interval
//! (c_(b−1), c_b] of the task's `cuts`.
//!
//! **Assumes** a label of kind `survival`: the time, whether it ended with the event, and where there is one, the time from which on a record was watched (left
//! truncation). `cuts` begin at 0, ascend, and cover the time's range. Rows have no intercept: that of a formula counts for the coding of its factors and is then left out.
//! θ = (ln λ_1, …, ln λ_B; β), names `baseline(0,30]`, …; the logarithms are of hazards per unit of time of the file.
//!
//! **Rows**: a record becomes one row (1 at b; x) for every interval in which it was watched for a time e_b = min(t, c_b) − max(entry, c_(b−1)) > 0, with d_b = 1 where the
//! event came in it: a Poisson count with the offset ln e_b. With a_b, s_b² of the row's predictor and E_b = e_b exp(a_b + s_b²/2),
//! f = Σ(d_b a_b − E_b), r_b = d_b − E_b, c_b = E_b. An event at the time of entry (a death on the day of admission; a time of 0) counts with e_b =
//! `least_exposure` in the interval of that time: else a treatment that kills at once would look as good as before. A record that left when it came without an event carries no information, and one
//! that left before it came is a mistake; both contribute 0, and `data inspect` counts them.
//!
//! **Bounds**: none of its own. Under a bound B (`residual_bound` of natural gradients) a record is watched from its entry on until E adds up to B at the public q: the
//! exposure in which that happens is shortened, and what comes later, an event too, was not seen. For given features and q that depends on the past alone, as any end
//! of watching does, so that at the truth Σ r_b ρ_b still has the expectation 0 and the covariance Σ E_b ρ_bρ_bᵀ. Then ΣE_b ≤ B, r_b ∈ [−B, 1] and c_b ∈ [0, B]. Where the true hazard is ρ times that of q, and
//! nothing else ends watching, the residual's expectation is (ρ − 1)(1 − e^(−ρB))/ρ. (To cut residuals instead is biased: E max(1 − E, −1) = e⁻² for E ~ Exp(1).)
//! All rows of all records of a unit are added, and the sum is clipped once, so that a person with many rows is one unit.
//!
//! **When**: time to death, discharge, relapse. A coefficient is the logarithm of a hazard ratio, as in Cox regression, whose baseline is free; with some more
//! intervals than the hazard has bends the two agree.
//!
//! **Defaults**: ln λ_b ~ N(−ln c_B, 2.5²) (`baseline_mean`, `baseline_scale`): one event in the whole range; `least_exposure = 0.5`, half of a day where times are whole days.
//!
//! **Source**: Holford 1980; Friedman 1982 (piecewise exponential models as Poisson regressions).

mod rows;
mod task;

pub use task::SurvivalRegression;
