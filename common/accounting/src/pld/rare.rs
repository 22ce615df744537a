//! Rare steps: bounds on δ(ε) by the number of outcomes that are far out.
//!
//! Where steps are rare, losses have a tail like that of a lognormal law: ε is decided by one or a few outcomes far out, on top of very many
//! small losses. No tilt fits both, so that one line for all of them ([`super::running`]) says little. Here each step is called far with a
//! probability that rises from 0 to 1 over a small range of outcomes ([`super::share`]). With A and B the transforms of the two shares,
//!
//! M(s)^T = Σ_k C(T, k) A(s)^{T−k} B(s)^k,
//!
//! and the term k is the transform of the law on the event that k steps are far. So D(ε) is the sum of the D_k(ε) of these events, and each has
//! a line of its own, with the tilt that fits it.
//!
//! * **Terms** are bounded by the summation formula of [`super::running`], whose proof needs no more than a measure.
//! * **Small terms** count with Chernoff's bound in the upper bound and with 0 in the lower one.
//! * **More far steps than any term** have at most the mass Σ_{k > K} (Tp)^k/k!, p the mass of far outcomes, which is added to the upper bound.
//! * **Outcomes beyond an end** are sent to infinity or dropped, as everywhere.
//!
//! Proof: [`crate::proofs::transforms`], "Far outcomes".

#[cfg(test)]
mod tests;

use super::line::{HIGHER, Line, Samples, sample_share};
use super::pair::{Map, Pair};
use super::quadrature::GAUSS_16;
use super::running::{Reading, crossing};
use super::share::{Fade, Share};
use super::{Interval, count, grid};

/// Width that is aimed at, relative to max(ε, `SMALL`), where ε is asked for and where δ is.
const AIM: f64 = 1e-4;
const AIM_OF_DELTA: f64 = 5e-6;
const SMALL: f64 = 0.01;
/// Most terms.
const MOST_TERMS: u32 = 60;
/// Most far outcomes that are expected.
const MOST_FAR: f64 = 12.0;
/// ln of Chernoff's bound for no far outcome over δ.
const LIGHT: f64 = 6.0;
/// Terms whose Chernoff bound is so many nats below δ are not worth a line.
const FAINT: f64 = 16.0;
/// Most frequencies of a line, and products of outcomes and frequencies of all lines of an answer.
const MOST: f64 = 200_000.0;
const QUICK: f64 = 4_000.0;
const WORK: usize = 600_000_000;
/// Relative error of the upper bound on the mass of far outcomes: quadrature and the rounding of its sum.
const FAR: f64 = 4e-11;
/// Smallest δ that is asked for.
const LEAST: f64 = 1e-20;
/// Octaves and their parts where a line is looked for.
const OCTAVES: u32 = 22;
/// Lines are made anew for the ε that was found at most so often.
const ROUNDS: usize = 4;

/// Many equal steps.
#[derive(Debug)]
struct Steps<'a> {
    pair: &'a Pair,
    times: f64,
    log_delta: f64,
    aim: f64,
    /// Of the outcomes whose losses have no largest value, and where they are left out.
    rising: Option<Map>,
    end: f64,
    /// (y, loss, ln weight) of a quadrature that guides; y is −∞ where outcomes are never far.
    nodes: Vec<(f64, f64, f64)>,
}

/// ln of a transform, and mean and variance of the tilted law.
type Cumulants = (f64, f64, f64);

/// Where a term has its weight.
#[derive(Debug, Clone, Copy)]
struct Saddle {
    theta: f64,
    log_moment: f64,
    variance: f64,
    /// ln of its part of δ(ε), roughly, and of the Chernoff bound.
    log_part: f64,
    log_chernoff: f64,
}

/// What a term adds.
#[derive(Debug)]
enum Term {
    Line(Line, Box<Samples>),
    /// Upper bound on ln M(θ), and θ.
    Chernoff(f64, f64),
}

/// All terms of one split.
#[derive(Debug)]
struct Terms {
    terms: Vec<Term>,
    /// Mass that no term has, at most.
    rest: f64,
}

impl<'a> Steps<'a> {
    fn new(pair: &'a Pair, times: u64, delta: f64, aim: f64) -> Option<Self> {
        let times = count(times);
        let log_delta = delta.ln();
        let rising = pair.segments.iter().find(|s| matches!(s.map, Map::Remove | Map::Replace) && s.high == f64::INFINITY);
        // What is left out costs this share of δ.
        let share = 0.2 * aim;
        let end = rising.map_or(0.0, |segment| {
            let (mut low, mut high) = (0.0, pair.ratio + 60.0);
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                if times * grid::outside(pair, segment, f64::NEG_INFINITY, middle).1 <= share * delta {
                    high = middle
                } else {
                    low = middle
                }
            }
            high
        });
        let mut nodes: Vec<_> =
            pair.atoms.iter().filter(|(_, mass)| *mass > 0.0).map(|&(loss, mass)| (f64::NEG_INFINITY, loss, mass.ln())).collect();
        let nats = (times.ln() - log_delta + 25.0, times.ln() - log_delta + 25.0);
        for segment in &pair.segments {
            let (low, mut high) = (pair.reach(segment, nats.0).0, pair.reach(segment, nats.1).1);
            let far = rising.is_some_and(|r| r == segment);
            if far {
                high = end;
            }
            if low >= high {
                return None;
            }
            let panels = ((high - low) / (0.35f64).min(0.7 / pair.ratio)).ceil().min(400.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
            let half = 0.5 * (high - low) / panels;
            let mut middle = low + half;
            while middle < high {
                for &(x, w) in &GAUSS_16.points {
                    let y = middle + half * x;
                    let (loss, log_density) = pair.at(segment.map, y);
                    nodes.push((if far { y } else { f64::NEG_INFINITY }, loss, log_density + (half * w).ln()));
                }
                middle += 2.0 * half;
            }
        }
        Some(Self { pair, times, log_delta, aim, rising: rising.map(|segment| segment.map), end, nodes })
    }

    /// Width over which outcomes fade from one share to the other.
    fn fade(&self, at: f64) -> Option<Fade> {
        let width = 0.1 / self.pair.ratio.max(1.0);
        (at + 8.0 * width < self.end).then_some(Fade { at, width })
    }

    fn cumulants(&self, fade: Option<Fade>, far: bool, theta: f64) -> Cumulants {
        let terms = || {
            self.nodes.iter().filter_map(move |&(y, loss, log)| {
                let share = match fade {
                    None if far => return None,
                    None => 0.0,
                    // Outside of the range where both are something.
                    Some(fade) if (y < fade.at - 8.0 * fade.width) || (y > fade.at + 8.0 * fade.width) => {
                        if far == (y > fade.at) {
                            0.0
                        } else {
                            return None;
                        }
                    }
                    Some(fade) => fade.log(y, if far { -1.0 } else { 1.0 }),
                };
                Some((loss, log + share + theta * loss))
            })
        };
        let top = terms().map(|t| t.1).fold(f64::NEG_INFINITY, f64::max);
        if !top.is_finite() {
            return (f64::NEG_INFINITY, 0.0, 0.0);
        }
        let (mut sum, mut first, mut second) = (0.0, 0.0, 0.0);
        for (loss, log) in terms() {
            let weight = (log - top).exp();
            sum += weight;
            first += weight * loss;
            second += weight * loss * loss;
        }
        let mean = first / sum;
        (top + sum.ln(), mean, (second / sum - mean * mean).max(1e-30))
    }

    /// ln of the term k of M^T at θ, and mean and variance there.
    fn term(&self, fade: Option<Fade>, k: u32, theta: f64) -> Cumulants {
        let (k, times) = (f64::from(k), self.times);
        let choose = log_choose(times, k);
        let near = self.cumulants(fade, false, theta);
        let mut sum = ((times - k) * near.0 + choose, (times - k) * near.1, (times - k) * near.2);
        if k > 0.0 {
            let far = self.cumulants(fade, true, theta);
            sum = (sum.0 + k * far.0, sum.1 + k * far.1, sum.2 + k * far.2);
        }
        sum
    }

    fn saddle(&self, fade: Option<Fade>, k: u32, epsilon: f64) -> Saddle {
        // The slope in θ of ln M(θ) − θε − ln θ − ln(θ + 1) rises.
        let slope = |theta: f64, mean: f64| mean - epsilon - 1.0 / theta - 1.0 / (theta + 1.0);
        let (mut low, mut high) = (1e-4f64.ln(), 1e9f64.ln());
        let mut log = (4.0 / (epsilon + 1e-6)).ln();
        let mut here = (0.0, 0.0, 0.0);
        for _ in 0..60 {
            let theta = log.exp();
            here = self.term(fade, k, theta);
            let value = slope(theta, here.1);
            if value > 0.0 {
                high = log
            } else {
                low = log
            }
            let steep = here.2 + theta.powi(-2) + (theta + 1.0).powi(-2);
            let newton = (theta - value / steep).max(0.2 * theta).min(5.0 * theta).ln();
            let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
            if (next - log).abs() < 1e-3 {
                break;
            }
            log = next;
        }
        let theta = log.exp();
        let log_chernoff = here.0 - theta * epsilon - theta.ln_1p();
        let variance = here.2 + theta.powi(-2) + (theta + 1.0).powi(-2);
        let log_part = log_chernoff - theta.ln() - 0.5 * (std::f64::consts::TAU * variance).ln();
        Saddle { theta, log_moment: here.0, variance: here.2, log_part, log_chernoff }
    }

    /// Where outcomes begin to be far: as far out as the law without far outcomes is light at ε.
    fn split(&self, epsilon: f64, room: f64) -> Option<Fade> {
        let map = self.rising?;
        let light = |fade: Option<Fade>| {
            let saddle = self.saddle(fade, 0, epsilon);
            let at = fade.map_or(self.end, |fade| fade.at);
            // One outcome there alone is as much as ε, and the more likely the farther out under the tilted law: a saddle between two hills.
            let hills = self.pair.at(map, at).0 > epsilon && saddle.theta * self.pair.slope(map, at) > at;
            saddle.log_chernoff <= self.log_delta + room && !hills
        };
        if light(None) {
            return None;
        }
        let expected = |at: f64| self.times * self.cumulants(self.fade(at), true, 0.0).0.exp();
        let (mut low, mut high) = (1.0f64, self.end - 0.9 / self.pair.ratio.max(1.0));
        while low < high && expected(low) > MOST_FAR {
            low += 0.2;
        }
        let least = low;
        for _ in 0..9 {
            let middle = 0.5 * (low + high);
            if light(self.fade(middle)) { low = middle } else { high = middle }
        }
        self.fade(low.max(least))
    }

    /// How many far steps there may be.
    fn most_terms(&self, fade: Option<Fade>) -> u32 {
        let Some(fade) = fade else { return 0 };
        let expected = self.times * self.cumulants(Some(fade), true, 0.0).0.exp() * (1.0 + 1e-6);
        let enough = |k: &u32| f64::from(*k) >= self.times || self.beyond(*k, expected).ln() < self.log_delta - FAINT;
        (0..MOST_TERMS).find(enough).unwrap_or(MOST_TERMS)
    }

    /// Bound on the probability of more than k far steps, `expected` = Tp of them: Σ_{j > k} x^j/j! ≤ x^{k+1}/(k+1)!·1/(1 − x/(k+2)).
    fn beyond(&self, k: u32, expected: f64) -> f64 {
        let next = f64::from(k) + 1.0;
        if next > self.times || expected <= 0.0 {
            0.0
        } else if expected >= next {
            1.0
        } else {
            let log_factorial: f64 = (1..=k + 1).map(|j| f64::from(j).ln()).sum();
            (next * expected.ln() - log_factorial).exp() / (1.0 - expected / (next + 1.0)) * (1.0 + 1e-12)
        }
    }

    fn saddles(&self, epsilon: f64, room: f64) -> (Option<Fade>, Vec<Saddle>) {
        let fade = self.split(epsilon, room);
        let most = self.most_terms(fade);
        (fade, (0..=most).map(|k| self.saddle(fade, k, epsilon)).collect())
    }

    /// Roughly ln δ(ε).
    fn rough(&self, epsilon: f64) -> f64 {
        let (_, saddles) = self.saddles(epsilon, LIGHT);
        saddles.iter().map(|s| s.log_part.exp()).sum::<f64>().ln()
    }

    /// Lines for questions near ε.
    fn terms(&self, epsilon: f64) -> Option<Terms> {
        // Where the law without far outcomes has a transform that decays slowly, so few outcomes count as near that it says nothing at ε.
        self.terms_of(epsilon, LIGHT, QUICK).or_else(|| self.terms_of(epsilon, -FAINT - 0.5, MOST))
    }

    fn terms_of(&self, epsilon: f64, room: f64, most: f64) -> Option<Terms> {
        let (fade, saddles) = self.saddles(epsilon, room);
        let total: f64 = saddles.iter().map(|s| s.log_part.exp()).sum();
        // −d ln δ/dε: what a width in ε is in δ.
        let steep = saddles.iter().map(|s| s.log_part.exp() * s.theta).sum::<f64>() / total;
        let small = (0.05 * self.aim * epsilon.max(SMALL) * steep).clamp(1e-9, 1e-2) / count(saddles.len() as u64);
        let mut terms = Vec::with_capacity(saddles.len());
        let (mut left_out, mut far, mut work) = (0.0f64, 0.0f64, 0);
        for (k, saddle) in (0u32..).zip(&saddles) {
            let worth = saddle.log_chernoff > self.log_delta - FAINT;
            let line =
                if worth { self.line(fade, k, saddle, epsilon, small, most)? } else { self.point(saddle.theta, [saddle.theta; HIGHER]) };
            let (sums, out, mass) = self.samples(fade, k, &line, WORK.saturating_sub(work))?;
            work += sums.work;
            (left_out, far) = (left_out.max(out), far.max(mass));
            terms.push(if worth { Term::Line(line, Box::new(sums)) } else { Term::Chernoff(sums.log_moment + sums.log_error, line.theta) });
        }
        let last = u32::try_from(saddles.len()).unwrap_or(u32::MAX) - 1;
        Some(Terms { terms, rest: (self.beyond(last, self.times * far) + self.times * left_out) * (1.0 + 1e-9) })
    }

    fn point(&self, theta: f64, higher: [f64; HIGHER]) -> Line {
        let nats = self.times.ln() - self.log_delta + 25.0;
        Line { theta, step: 1.0, near: 1, octaves: 0, fineness: 1, nats: (nats, nats), higher }
    }

    /// The transform of term k on a line, the mass that was left out of one step, and that of far outcomes.
    fn samples(&self, fade: Option<Fade>, k: u32, line: &Line, work: usize) -> Option<(Samples, f64, f64)> {
        let mut sums = Samples::none(line);
        let (mut far, mut left_out) = (0.0, 0.0);
        if let Some(fade) = fade {
            let share = Share::Far { fade, end: self.end };
            // Its mass is needed even where no step is far.
            let one = if k > 0 {
                let one = sample_share(self.pair, line, share, work)?;
                sums.add(&one, f64::from(k));
                one
            } else {
                sample_share(self.pair, &self.point(line.theta, line.higher), share, work)?
            };
            (far, left_out) = (one.log_mass.exp(), one.left_out);
        }
        let near = sample_share(self.pair, line, Share::Near { fade, end: self.end, far, missing: left_out + FAR * far }, work)?;
        sums.add(&near, self.times - f64::from(k));
        let choose = log_choose(self.times, f64::from(k));
        sums.log_moment += choose;
        sums.log_error += 1e-11;
        sums.log_mass = (sums.log_mass + choose + 1e-9).min(0.0);
        for higher in &mut sums.higher {
            *higher += choose + 1e-11;
        }
        sums.left_out = 0.0;
        Some((sums, left_out + near.left_out, far))
    }

    fn line(&self, fade: Option<Fade>, k: u32, saddle: &Saddle, epsilon: f64, small: f64, most: f64) -> Option<Line> {
        let theta = saddle.theta;
        let sd = saddle.variance.sqrt();
        let target = small.ln() + self.log_delta;
        let spread = [1.0, 2.0, 4.0, 8.0].map(|z| z / sd);
        let above = |x: f64| (self.term(fade, k, theta + x).0 - (theta + x) * epsilon - (theta + x).ln_1p() - target) / x;
        let above = spread.iter().map(|&x| above(x)).fold(f64::INFINITY, f64::min);
        let mass = self.term(fade, k, 0.0).0.min(0.0);
        let period = 1.02 * above.max((mass - target) / theta).max(sd);
        let step = std::f64::consts::TAU / period;
        let probe = Line { step: 1.0 / sd, octaves: OCTAVES, fineness: 32, ..self.point(theta, spread.map(|x| theta + x)) };
        let (sums, ..) = self.samples(fade, k, &probe, WORK)?;
        // Frequencies from t on add up to |φ|/(πt) Chernoff values.
        let silent = |t: f64| target - (saddle.log_moment - theta * epsilon) + (std::f64::consts::PI * t).ln();
        let loud = probe.intervals().zip(&sums.middle).filter(|((centre, half), log)| **log > silent(centre - half));
        let loud = loud.map(|((centre, half), _)| centre + half).fold(1.0 / sd, f64::max);
        let end = probe.ends().zip(&sums.beyond).find(|(end, log)| *end > loud && **log <= silent(*end))?.0;
        let near = (loud / step).ceil().max(16.0);
        if !(near <= most && period.is_finite()) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        let (near, octaves) = (near as usize, ((end / loud).log2().ceil().max(1.0) as u32 + 1).min(OCTAVES));
        Some(Line { step, near, octaves, fineness: 32, ..probe })
    }
}

/// ln C(T, k).
fn log_choose(times: f64, k: f64) -> f64 {
    let mut sum = 0.0;
    let mut i = 0.0;
    while i < k {
        sum += ((times - i) / (i + 1.0)).ln();
        i += 1.0;
    }
    sum
}

impl Terms {
    /// Lower bound, estimate and upper bound on δ as functions of ε.
    fn readings(&self) -> (Vec<Reading<'_>>, Vec<(f64, f64)>) {
        let (mut readings, mut bounds) = (Vec::new(), Vec::new());
        for term in &self.terms {
            match term {
                Term::Line(line, sums) => readings.push(Reading::new(line, sums)),
                Term::Chernoff(log_moment, theta) => bounds.push((*log_moment, *theta)),
            }
        }
        (readings, bounds)
    }
}

/// Bounds on δ(ε) at all ε.
struct Profile<'a> {
    readings: Vec<Reading<'a>>,
    bounds: Vec<(f64, f64)>,
    rest: f64,
}

impl<'a> Profile<'a> {
    fn new(terms: &'a Terms) -> Self {
        let (readings, bounds) = terms.readings();
        Self { readings, bounds, rest: terms.rest }
    }

    fn upper(&self, epsilon: f64) -> f64 {
        // (1 − e^{−x})₊ ≤ e^{θx}/(θ + 1)
        let bounds = self.bounds.iter().map(|(log, theta)| (log - theta * epsilon - theta.ln_1p()).exp() * (1.0 + 1e-9));
        ((self.readings.iter().map(|r| r.upper(epsilon)).chain(bounds).sum::<f64>() + self.rest) * (1.0 + 1e-12)).min(1.0)
    }

    fn estimate(&self, epsilon: f64) -> f64 {
        self.readings.iter().map(|r| r.estimate(epsilon)).sum()
    }

    fn lower(&self, epsilon: f64) -> f64 {
        self.readings.iter().map(|r| r.lower(epsilon).max(0.0)).sum::<f64>() * (1.0 - 1e-12)
    }
}

/// Bounds on ε(δ) of `times` equal steps; `None` where they are out of reach. The interval may be wider than what is aimed at.
pub(crate) fn epsilon(pair: &Pair, times: u64, delta: f64) -> Option<Interval> {
    let steps = Steps::new(pair, times, delta, AIM)?;
    // ln ε by bisection.
    let (mut low, mut high) = (1e-7f64.ln(), 0.0f64);
    while steps.rough(high.exp()) > steps.log_delta {
        low = high;
        high += 1.0;
        if high > 12.0 {
            return None;
        }
    }
    while high - low > 0.05 {
        let middle = 0.5 * (low + high);
        if steps.rough(middle.exp()) > steps.log_delta { low = middle } else { high = middle }
    }
    let mut guess = (0.5 * (low + high)).exp();
    let mut best: Option<Interval> = None;
    for _ in 0..ROUNDS {
        let Some(terms) = steps.terms(guess) else { break };
        let profile = Profile::new(&terms);
        let scale = guess.max(1e-7);
        let middle = crossing(&|e| profile.estimate(e), delta, guess, scale).map_or(guess, |(_, high)| high);
        let upper = crossing(&|e| profile.upper(e), delta, middle, 1e-3 * scale).map_or(f64::INFINITY, |(_, high)| high);
        let lower = crossing(&|e| profile.lower(e), delta, middle, 1e-3 * scale).map_or(0.0, |(low, _)| low);
        let found = Interval::bounded(lower, middle, upper);
        let found = best.map_or(found, |b| Interval::bounded(b.lower.max(found.lower), found.estimate, b.upper.min(found.upper)));
        best = Some(found);
        if found.is_narrow(AIM, SMALL) || !(0.5..2.0).contains(&(middle / guess)) && middle < 1e-7 {
            break;
        }
        let next = middle.clamp(0.125 * guess, 8.0 * guess);
        if (next / guess - 1.0).abs() < 1e-3 {
            break;
        }
        guess = next;
    }
    best
}

/// Bounds on δ(ε) of `times` equal steps; `None` where they are out of reach, as for any δ below [`LEAST`].
pub(crate) fn delta(pair: &Pair, times: u64, epsilon: f64) -> Option<Interval> {
    let mut guess = 1e-6f64;
    for _ in 0..8 {
        let steps = Steps::new(pair, times, guess, AIM_OF_DELTA)?;
        let rough = steps.rough(epsilon);
        if (rough - steps.log_delta).abs() < 2.0 {
            let terms = steps.terms(epsilon)?;
            let profile = Profile::new(&terms);
            return Some(Interval::bounded(profile.lower(epsilon), profile.estimate(epsilon), profile.upper(epsilon)));
        }
        guess = rough.exp().min(0.9);
        if guess.is_nan() || guess < LEAST {
            return None;
        }
    }
    None
}
