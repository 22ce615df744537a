//! How far one liar among three sites moves the result of the sample task, beside what as many records as a site may declare could do.

use dp_pvi_math::draws::Draws;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_models::rows::Rows;
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::methods::prior_predictive::{Player, Sent, Stage};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_protocol::shape::{At, Shape, of_site};
use nalgebra::DVector;

use crate::forecast::simulated;

/// Records of each of the two honest sites, and the most that a site may declare.
const HONEST: f64 = 5600.0;
const MOST: u64 = 20_000;
/// Draws of records and noise.
const DRAWS: u8 = 3;

fn sample() -> ResolvedTask {
    let context = ResolveContext { name: "three-hospitals", update_deadline_seconds: 120, min_sites: 2, expected_sites: 3 };
    let task = RawTask::parse(include_str!("../../../../../deploy/task.toml")).unwrap();
    // Records are drawn from the schema's text: its comments shall not count.
    let schema = include_str!("../../../../../deploy/schema.toml").lines().filter(|line| !line.starts_with('#'));
    task.resolve(&schema.collect::<Vec<_>>().join("\n"), context).unwrap()
}

/// What the third site sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Third {
    Nothing,
    /// The noised sums of as many records as it may declare, all alike: the longest row with entries of these signs, always an event.
    Records(Way),
    /// In every round the longest gradient that passes this way, with no curvature; at the first visit the Gram matrix of so many such records, as a share of the most.
    Push(Way, f64),
    /// The same after the Gram matrix of as many intercepts.
    Hidden(Way),
    /// The same along one coefficient, up or down.
    HiddenOne(usize, f64),
    /// The noised sums of as many records, with this entry and an intercept: half up one coefficient with an event, half down without.
    Pair(usize, f64),
    /// As many squares below zero as pass, in every direction, and no gradient.
    Negative,
}

/// Where a liar pulls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Every coefficient upwards.
    Up,
    /// Against the honest sites' result: entries of equal length.
    Back,
    /// Against the state of the round.
    Against,
}

/// The run's posterior means. The third site declares so many units.
fn run(task: &ResolvedTask, third: Third, units: u64, result: &[f64], seed: u8) -> Vec<f64> {
    let predictor = task.model.rules().predictor().unwrap();
    let mut honest = simulated(task, &[5600, 5600], 400, 1).unwrap().federation.rows;
    honest.stand_for(2.0 * HONEST);
    let schema = task.parsed_schema().unwrap();
    let d = task.dimension as usize;
    // Every entry at its greatest, shortened to the bound of a row.
    let entry = schema.row_norm_bound() / (d as f64).sqrt();
    let row = |way: Way| -> Vec<f64> {
        match way {
            Way::Up => vec![entry; d],
            Way::Back | Way::Against => result.iter().map(|mean| -entry * mean.signum()).collect(),
        }
    };
    let rows = |way: Way| {
        let mut liars = Rows::new(d);
        let indices: Vec<u32> = (0..task.dimension).collect();
        liars.push(&indices, &row(way), 0.0);
        liars.set_targets(|_| [(1.0, 1.0), (0.0, 0.0)]);
        liars.stand_for(units as f64);
        liars
    };
    let (mut draws, mut own) = (Draws::of(&[seed; 32]).part(7), Draws::of(&[seed; 32]).part(8));
    let rule = task.rule();
    let mut state = rule.initial();
    let (mut rounds, mut first): (_, Option<Vec<f64>>) = (Vec::new(), None);
    let two = [Player { share: 0.5, carried: &[] }, Player { share: 0.5, carried: &[] }];
    let one = [Player { share: 1.0, carried: &[] }];
    let sent = |visit: u32, state: &[f64], rows: &Rows, players: &[Player<'_>], draws: &mut Draws| match task
        .simulate(visit, state, &mut Stage { rows, predictor: predictor.as_ref(), players, draws })
        .unwrap()
    {
        Sent::Sum(sum) => sum,
        Sent::Changes(_) => panic!("natural gradients are sums"),
    };
    for visit in 0..task.visits() {
        let mut sum = sent(visit, &state, &honest, &two, &mut draws);
        let Some(Shape::Moments(moments)) = of_site(task, visit, units, At { state: &state, first: first.as_deref() }).unwrap() else {
            panic!("a sum of moments")
        };
        let longest = |direction: Vec<f64>| {
            let long: Vec<f64> = direction.iter().map(|v| v * 1e9).collect();
            let factor = moments.factor_within(&long);
            long.iter().map(|v| v * factor).collect::<Vec<f64>>()
        };
        let gradient = |of: &[f64]| longest((0..sum.len()).map(|j| if j < d { of[j] } else { 0.0 }).collect());
        let lie = match third {
            Third::Nothing => vec![0.0; sum.len()],
            Third::Records(way) => sent(visit, &state, &rows(way), &one, &mut own),
            Third::Push(way, told) if visit == 0 => {
                let x = DVector::from_vec(row(way));
                svec(&(&x * x.transpose() * (0.25 * told * units as f64)))
            }
            Third::Hidden(_) | Third::HiddenOne(..) if visit == 0 => {
                let mut x = DVector::zeros(d);
                x[d - 1] = 1.0;
                svec(&(&x * x.transpose() * (0.25 * units as f64)))
            }
            Third::Hidden(way) => gradient(&row(way)),
            Third::HiddenOne(j, sign) => gradient(&(0..d).map(|i| if i == j { sign } else { 0.0 }).collect::<Vec<_>>()),
            Third::Pair(j, size) => {
                let mut liars = Rows::new(d);
                for sign in [1.0, -1.0] {
                    let mut x = vec![0.0; d];
                    (x[j], x[d - 1]) = (sign * size, 1.0);
                    liars.push(&(0..task.dimension).collect::<Vec<_>>(), &x, 0.0);
                }
                liars.set_targets(
                    |at| if (at.values[j] > 0.0) == (size > 0.0) { [(1.0, 1.0), (0.0, 0.0)] } else { [(0.0, 1.0), (1.0, 0.0)] },
                );
                liars.stand_for(units as f64);
                sent(visit, &state, &liars, &one, &mut own)
            }
            Third::Push(Way::Against, _) => gradient(&state[task.family().len()..][..d].iter().map(|mean| -mean).collect::<Vec<f64>>()),
            Third::Push(way, _) => gradient(&row(way)),
            Third::Negative => {
                let first = if visit == 0 { 0 } else { d };
                let diagonal: Vec<usize> = (0..d)
                    .scan(first, |place, i| {
                        let at = *place;
                        *place += d - i;
                        Some(at)
                    })
                    .collect();
                longest((0..sum.len()).map(|j| if diagonal.contains(&j) { -1.0 } else { 0.0 }).collect())
            }
        };
        if visit == 0 {
            first = Some(lie.clone());
        }
        sum.iter_mut().zip(&lie).for_each(|(sum, lie)| *sum += lie);
        let step = rule.apply(&state, &VisitSum { visit, sites: 3, sum: &sum });
        state = step.state;
        rounds.push(ClosedRound { visit, included: vec![0, 1, 2], state: state.clone(), correction: step.correction });
    }
    let aware = of_run(task, &History { shares: vec![0.25, 0.25, 0.5], rounds }).unwrap();
    Gaussian::from_natural(task.family(), aware.natural_parameters).unwrap().standard().mean().to_vec()
}

/// What a third site does to the sample task, in one draw of records and noise.
fn figures(task: &ResolvedTask, seed: u8) -> [f64; 5] {
    let d = task.dimension as usize;
    let none = run(task, Third::Nothing, MOST, &vec![0.0; d], seed);
    let moved = |third, units| run(task, third, units, &none, seed).iter().zip(&none).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let most = |all: &[Third], units| all.iter().map(|third| moved(*third, units)).fold(0.0, f64::max);
    let of_each = |third: &dyn Fn(usize, f64) -> Third, sizes: &[f64]| -> Vec<Third> {
        (0..d - 1).flat_map(|j| sizes.iter().map(move |size| third(j, *size)).collect::<Vec<_>>()).collect()
    };
    let ways = [Way::Up, Way::Back, Way::Against];
    let alike = most(&ways[..2].iter().map(|way| Third::Records(*way)).collect::<Vec<_>>(), MOST);
    let records = most(&of_each(&Third::Pair, &[3.0, 1.0, 0.5, 0.25]), MOST).max(alike);
    let mut lies = of_each(&Third::HiddenOne, &[1.0, -1.0]);
    lies.extend(ways.iter().flat_map(|way| [0.0, 0.1, 1.0].map(|told| Third::Push(*way, told))));
    lies.extend([Third::Negative, Third::Hidden(Way::Up), Third::Hidden(Way::Back)]);
    // What passes of a site that declares one record is noise.
    [alike, records, most(&lies, 1), moved(Third::Push(Way::Against, 0.0), MOST), most(&lies, MOST)]
}

/// The figures of `deploy/guide/src/threat-model.md`: what records of a liar's choice do, what noise does that passes, and the largest of the lies that are tried. Medians of
/// draws that do not depend on the sample's comments.
#[test]
fn one_liar_moves_the_sample_task_no_farther_than_the_page_says() {
    let task = sample();
    let draws: Vec<[f64; 5]> = (1..=DRAWS).map(|seed| figures(&task, seed)).collect();
    let medians = std::array::from_fn::<_, 5, _>(|figure| {
        let mut of_draws: Vec<f64> = draws.iter().map(|figures| figures[figure]).collect();
        of_draws.sort_by(f64::total_cmp);
        of_draws[of_draws.len() / 2]
    });
    let [alike, records, noise, against, worst] = medians;
    assert!((2.2..2.7).contains(&alike) && (6.5..7.0).contains(&records) && (4.2..4.7).contains(&noise), "{medians:?}");
    assert!((1.8..2.2).contains(&against) && (11.0..11.6).contains(&worst), "{medians:?}");
    assert!(draws.iter().all(|[_, records, noise, _, worst]| *worst < 1.3 * (records + noise)), "{draws:?}");
}
