//! Which neighbours are tried for a row: who the canary is, who is beside it, and what the server asks.
//!
//! A canary is one privacy unit of one or many records. Nothing promises that a unit keeps to the schema, so neither does a canary. Of all scenes of a
//! row the one is played whose neighbours are furthest apart (`super::worst_neighbours`).
//!
//! Where a term has blocks that are clipped one by one, a canary must fill all of them, and its opposite must fill them the other way round. Residuals have
//! two signs, so first moments do. Second moments and precisions of a site that was just met have one: there the server helps. A method that
//! takes the old factor out of the new one sends −(old factor) for a unit that has nothing to say, and the old factor is what the server makes of λ.

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_posterior::task::{FactorOwner, PropagationSpec, StatisticsSpec, UpdateSpec};

use super::registry::Case;
use dp_pvi_catalogue::Records;

/// A record: features and target.
pub(super) type Record = (Vec<f64>, f64);
/// A unit.
pub(super) type Unit = Vec<Record>;

/// A canary, its opposite, and the data set that they are put into.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) canary: Unit,
    /// In the canary's place, under replace-one.
    pub(super) opposite: Unit,
    pub(super) background: Vec<Unit>,
    /// λ of the visits, in turn; none: that with which the task begins.
    pub(super) asked: Vec<Vec<f64>>,
}

/// Records of a canary.
const COPIES: usize = 40;
/// Short records of a canary whose second moments are to stay small, and their size. Their residuals add up.
const SHORT: (usize, f64) = (400, 0.05);
/// About σ√ν of the robust regression: an error of this size has the longest gradient.
const ROBUST: f64 = 1.4;
/// Units of a background.
const BACKGROUND: usize = 7;
/// Units of a background that opposes the canary, for each of a few shards: one layout in some thousands leaves a shard without any.
const OPPONENTS: usize = 8;

/// The scenes of a row.
pub(super) fn scenes(case: &Case) -> Vec<Scene> {
    let on = On { case, features: case.task.features as usize };
    let event = format!("{:?}", case.task.visit_event(0));
    if ["PoissonSampled", "RandomAllocation"].iter().any(|sampling| event.contains(sampling)) {
        // What others add would be one more unknown.
        return vec![on.plain(vec![Unit::new(); BACKGROUND])];
    }
    match &case.task.update {
        UpdateSpec::Shards(spec) => {
            let mut scenes = if case.steady { Vec::new() } else { vec![on.opposed(spec.shards)] };
            // A likelihood that is integrated numerically takes long, and one scene is enough.
            if case.relation == Relation::ReplaceOne && !case.steady && !case.model.starts_with("probit") {
                let pair = |long| on.between(on.crossed(false, (COPIES, 0.3), Some(long)), on.crossed(true, (COPIES, 0.3), Some(long)));
                scenes.extend([2.0, 4.0].map(pair));
            }
            // What shards start from may move all of them: from backgrounds that say nothing to backgrounds that the clip shortens.
            let targets: &[f64] = if case.model.starts_with("linear-regression") { &[0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 32.0] } else { &[] };
            scenes.extend(targets.iter().map(|target| on.alike(*target)));
            scenes
        }
        UpdateSpec::NaturalGradient(_) | UpdateSpec::GlobalVi(_) => on.plain_and_crossed(),
        UpdateSpec::Vips(spec) => match spec.statistics {
            StatisticsSpec::PolyaGamma(_) => on.plain_and_crossed(),
            StatisticsSpec::LinearNoise(numbers) => {
                let [_, second, third] = numbers.shares;
                // Second moments of the row and of the target that are equally long after scaling.
                let target = numbers.target_bound / case.task.feature_bound * (second / third).powf(0.25);
                let unit = |sign: f64| vec![(on.along(0, 1.0), sign * target); 400];
                vec![on.between(unit(1.0), unit(-1.0))]
            }
            StatisticsSpec::Documents(_) | StatisticsSpec::Images(_) => vec![on.plain(on.mixed())],
        },
        UpdateSpec::Propagation(spec) => on.propagation(spec),
        UpdateSpec::DpEm(_) => vec![on.far_points()],
        _ => vec![on.plain(on.mixed())],
    }
}

/// Makes the scenes of one case.
struct On<'a> {
    case: &'a Case,
    features: usize,
}

impl On<'_> {
    /// A row with one feature.
    fn along(&self, axis: usize, size: f64) -> Vec<f64> {
        (0..self.features).map(|j| if j == axis % self.features { size } else { 0.0 }).collect()
    }

    /// These two among units that say nothing.
    fn between(&self, canary: Unit, opposite: Unit) -> Scene {
        Scene { canary, opposite, background: vec![Unit::new(); BACKGROUND], asked: Vec::new() }
    }

    /// A target that is as far off as the model can tell, on one side or the other.
    fn target(&self, opposite: bool) -> f64 {
        match self.case.records {
            Records::Classes => f64::from(u8::from(!opposite)),
            // An event early, or none for long. Where the shape is learned, a time near 0 says most about the shape, in both neighbours.
            Records::Times => match opposite {
                true => 10.0,
                false if self.case.model.starts_with("weibull") => -0.5,
                false => -0.01,
            },
            Records::Several | Records::Ordered => f64::from(2 * u8::from(!opposite)),
            Records::Positive if opposite => 0.01,
            _ if self.counts() && opposite => 0.0,
            // An outlier says nothing there.
            _ if self.case.model.starts_with("robust") => ROBUST * if opposite { -1.0 } else { 1.0 },
            _ => 1e4 * if opposite { -1.0 } else { 1.0 },
        }
    }

    /// Whether targets are counts, of which none is below 0.
    fn counts(&self) -> bool {
        ["poisson", "negative-binomial"].iter().any(|name| self.case.model.starts_with(name))
    }

    /// The target that a coefficient of the standard normal prior expects for one feature of this size: its residual is next to nothing.
    fn expected(&self, size: f64) -> f64 {
        if self.counts() { (0.5 * size * size).exp().round() } else { 0.0 }
    }

    /// Many like records with small features and an extreme target: a long gradient that points one way, or the other.
    fn many(&self, opposite: bool) -> Unit {
        let sign = if opposite { -1.0 } else { 1.0 };
        let record = match self.case.records {
            Records::Classes | Records::Several | Records::Ordered | Records::Times | Records::Numbers | Records::Positive => {
                (vec![0.3; self.features], self.target(opposite))
            }
            Records::Points => (vec![sign; self.features], sign),
            // The first half of the words or pixels, or the other one.
            Records::Documents | Records::Images => {
                let mine = |j: usize| (j < self.features.div_ceil(2)) != opposite;
                let value = if self.case.records == Records::Documents { 20.0 } else { 1.0 };
                ((0..self.features).map(|j| if mine(j) { value } else { 0.0 }).collect(), 0.0)
            }
        };
        vec![record; COPIES]
    }

    /// Four that say little, and three of many records: a rule that looks at the background to clip one unit moves all of them.
    fn mixed(&self) -> Vec<Unit> {
        let row = match self.case.records {
            Records::Documents | Records::Images => self.along(0, 1.0),
            _ => vec![1e-3; self.features],
        };
        (0..BACKGROUND).map(|k| if k < 4 { vec![(row.clone(), 1.0)] } else { self.many(false) }).collect()
    }

    fn plain(&self, background: Vec<Unit>) -> Scene {
        Scene { canary: self.many(false), opposite: self.many(true), background, asked: Vec::new() }
    }

    fn plain_and_crossed(&self) -> Vec<Scene> {
        let crossed = |long: Option<f64>| Scene {
            canary: self.crossed(false, SHORT, long),
            opposite: self.crossed(true, SHORT, long),
            ..self.plain(self.mixed())
        };
        let sizes = [None, Some(2.0), Some(3.0), Some(4.0), Some(6.0)];
        std::iter::once(self.plain(self.mixed())).chain(sizes.map(crossed)).collect()
    }

    /// Short records along the first feature with an extreme target, whose second moments are small. If asked for, one long record along the
    /// second feature (along the third one in the opposite), so that the second moments of the two differ, too.
    fn crossed(&self, opposite: bool, (count, size): (usize, f64), long: Option<f64>) -> Unit {
        let mut unit = vec![(self.along(0, size), self.target(opposite)); count];
        unit.extend(long.map(|long| (self.along(if opposite { 2 } else { 1 }, long), self.expected(long))));
        unit
    }

    /// Like units with one small feature and targets of this size, and a canary with the same feature alone: what a shard of them fits is then as
    /// long as the target is large, points where the canary points, and a mean field fits it exactly.
    fn alike(&self, target: f64) -> Scene {
        let unit = |opposite| vec![(self.along(0, 0.3), self.target(opposite)); COPIES];
        let background = vec![vec![(self.along(0, 0.1), target)]; BACKGROUND];
        Scene { canary: unit(false), opposite: unit(true), background, asked: Vec::new() }
    }

    /// A background in every shard that pulls one way, and a canary that pulls more strongly the other way: with it and without it the result of its shard is
    /// as long as the clip allows, and points the other way.
    fn opposed(&self, shards: u32) -> Scene {
        // Long enough for the precisions to be at their bound in either case.
        let (weak, strong) = match self.case.records {
            Records::Classes | Records::Several | Records::Ordered => (3.0, 6.0),
            _ if self.counts() => (2.0, 2.0),
            _ => (100.0, 100.0),
        };
        // Distinct, so that a hash of their content spreads them over all shards.
        #[allow(clippy::cast_precision_loss, reason = "a hundred")]
        let opponent = |k: usize| vec![(self.along(0, weak * (1.0 + 1e-4 * k as f64)), 0.01 * self.target(true))];
        let whole_site = self.case.task.privacy.unit == PrivacyUnit::Site;
        let background = if whole_site { Vec::new() } else { (0..OPPONENTS * shards as usize).map(opponent).collect() };
        let unit = |opposite| self.crossed(opposite, (COPIES, strong), None);
        Scene { canary: unit(false), opposite: unit(true), background, asked: Vec::new() }
    }

    /// Points so far apart that each belongs to one component, and long enough for the clip.
    fn far_points(&self) -> Scene {
        let state = self.case.task.rule().initial();
        let mean = |k: usize| state[k] / state[2 * self.features + k];
        let apart: Vec<f64> = (0..self.features).map(|i| mean(i) - mean(self.features + i)).collect();
        let length = apart.iter().map(|x| x * x).sum::<f64>().sqrt();
        let unit = |sign: f64| vec![(apart.iter().map(|x| sign * 100.0 * x / length).collect(), 0.0)];
        self.between(unit(1.0), unit(-1.0))
    }

    /// λ of a Gaussian with these means and one precision.
    fn asked(&self, mean: &[f64], precision: f64) -> Vec<f64> {
        let mut natural = self.case.task.family().isotropic(0.0, 1.0 / precision);
        natural.iter_mut().zip(mean).for_each(|(h, m)| *h = precision * m);
        natural
    }

    fn propagation(&self, spec: &PropagationSpec) -> Vec<Scene> {
        let mut scenes = vec![self.plain(self.mixed())];
        #[allow(clippy::cast_precision_loss, reason = "40 records")]
        let parts = spec.records as f64;
        let shared = spec.factors == FactorOwner::Shared;
        match self.case.records {
            Records::Classes => {
                let first: Record = (self.along(0, 10.0), 1.0);
                for factor in [0.0, 0.1, 1.0, 5.0] {
                    for count in [1, 40] {
                        // A shared factor of this precision. The opposite has hardly any of its own: its change is minus the shared one.
                        let mut scene = self.between(vec![first.clone(); count], self.crossed(true, SHORT, None));
                        scene.asked = vec![self.asked(&[], 1.0 + parts * factor)];
                        scenes.push(scene);
                    }
                }
                if !shared {
                    scenes.push(self.alternating());
                }
            }
            Records::Points if self.case.model.starts_with("gaussian-mixture") => {
                // Half of what the likelihood adds to the precision of the component that has the points.
                let half = self.half_precision() * if spec.site_passes.is_some() { 6.0 } else { 1.0 };
                for factor in [0.0, half] {
                    let point = |x: f64, y: f64| -> Record { (vec![x, y], 0.0) };
                    let canary = vec![point(10.0, 100.0); 6];
                    let opposite = [vec![point(10.0, -1000.0)], vec![point(-10.0, 0.0); 6]].concat();
                    let mut scene = self.between(canary, opposite);
                    scene.asked = vec![self.asked(&[10.0, 0.0, -10.0, 0.0], 1.0 + parts * factor)];
                    if !shared {
                        scene.asked.push(self.asked(&[-10.0, 0.0, 10.0, 0.0], 1.0 + parts * factor));
                    }
                    scenes.push(scene);
                }
            }
            Records::Points if spec.site_passes.is_some() => scenes.push(self.network(1.5, parts, 1)),
            Records::Points => scenes.push(self.network(0.01, parts, 400)),
            _ => {}
        }
        scenes
    }

    /// 1/(2σ²) of a mixture's points.
    fn half_precision(&self) -> f64 {
        0.5 / self.case.task.model.rules().mixture().map_or(1.0, |mixture| mixture.noise_sd.powi(2))
    }

    /// A shared factor that is `size` on the output's constant (slope and precision) and on the rate of the noise, and nothing elsewhere. The canary is far off at
    /// the constant alone, and moves all three the other way; its opposite has features so long that its site is nothing.
    fn network(&self, size: f64, parts: f64, opposite: usize) -> Scene {
        let shape = 6.0;
        let (vague, rate) = (1e-6, 6.0 + parts * size);
        let weights = self.case.task.dimension as usize - 1;
        let hidden = (weights - 1) / (self.features + 2);
        let (mut mean, mut prior, mut precision) = (vec![0.0; weights], vec![vague; weights], vec![vague; weights]);
        // Without features no hidden unit is active.
        (0..hidden).for_each(|unit| mean[unit * (self.features + 1) + self.features] = -1e5);
        let last = weights - 1;
        (mean[last], prior[last]) = (1.0, parts * size);
        precision[last] = prior[last] + parts * size;
        let mut state: Vec<f64> = mean.iter().zip(&precision).map(|(m, p)| m * p).collect();
        state.push(rate);
        state.extend(&precision);
        state.push(rate * rate / shape);
        state.extend(prior.iter().flat_map(|precision| [*precision, 0.0, 0.0]));
        state.extend([6.0, 5.0]);
        let output = 1.0 / f64::from(u32::try_from(hidden + 1).unwrap_or(1)).sqrt();
        let unit = |row: f64, target: f64, copies: usize| vec![(vec![row; self.features], target); copies];
        Scene { asked: vec![state], ..self.between(unit(0.0, output + 5.0, 400), unit(1e6, output, opposite)) }
    }

    /// For factors that a unit keeps. A record that λ is sure of has a site that says nothing, so its change is minus what it kept; one that λ knows nothing of
    /// has a large precision. λ moves back and forth so that it is sure of the canary and of its opposite in turn. Short records beside them keep the
    /// first moments apart at every visit.
    fn alternating(&self) -> Scene {
        let (share, size, sure) = (0.3, 10.0, 5.0);
        let mut row = self.along(1, size);
        row[0] = share * size;
        let with = |record: Record, target: f64| [vec![(self.along(2, 0.02), target); 400], vec![record]].concat();
        let mut scene = self.between(with((row, 1.0), 1.0), with((self.along(1, size), 0.0), 0.0));
        scene.asked = vec![self.asked(&[sure / share, 0.0], 1e5), self.asked(&[sure / share, -sure], 1e5)];
        scene
    }
}
