//! How far one liar among three sites moves the result of the sample task, beside what as many records as a site may declare could do.

use dp_pvi_expfam::any::Gaussian;
use dp_pvi_posterior::methods::Arrived;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::methods::rehearsal::{Player, Sent, Stage};
use dp_pvi_posterior::models::rows::Rows;
use dp_pvi_posterior::numerics::draws::Draws;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_reading::noise_aware::of_run;
use dp_pvi_reading::shape::{At, Shape, of_site};

use crate::{rehearsal, seed};

/// Records of each of the two honest sites, and the most that a site may declare.
const HONEST: f64 = 5600.0;
const MOST: u64 = 20_000;

fn sample() -> ResolvedTask {
    let context = ResolveContext { name: "three-hospitals", update_deadline_seconds: 120, min_sites: 2, expected_sites: 3 };
    let task = RawTask::parse(include_str!("../../../../deploy/task.toml")).unwrap();
    task.resolve(include_str!("../../../../deploy/schema.toml"), context).unwrap()
}

/// What the third site sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Third {
    Nothing,
    /// The noised sums of as many records as it may declare, all alike: the longest row with the largest entries upwards, always an event.
    Records,
    /// The longest gradient that passes in the direction of such records, with no curvature in any round.
    Push,
    /// The same against the direction in which the honest sites have moved.
    Against,
    /// As many squares below zero as pass, in every direction, and no gradient.
    Negative,
}

/// The run's posterior means.
fn run(task: &ResolvedTask, third: Third) -> Vec<f64> {
    let predictor = task.model.rules().predictor().unwrap();
    let mut honest = rehearsal(task, &[5600, 5600], 400, 1).unwrap().world.rows;
    honest.stand_for(2.0 * HONEST);
    let schema = task.parsed_schema().unwrap();
    let d = task.dimension as usize;
    // Every entry at its greatest, shortened to the bound of a row.
    let row = vec![schema.row_norm_bound() / (d as f64).sqrt(); d];
    let mut liars = Rows::new(d);
    let indices: Vec<u32> = (0..task.dimension).collect();
    liars.push(&indices, &row, 0.0);
    liars.set_targets(|_| [(1.0, 1.0), (0.0, 0.0)]);
    liars.stand_for(MOST as f64);
    let (mut draws, mut own) = (seed(task).part(7), seed(task).part(8));
    let rule = task.rule();
    let mut state = rule.initial();
    let (mut rounds, mut first): (_, Option<Vec<f64>>) = (Vec::new(), None);
    let two = [Player { share: 0.5, carried: &[] }, Player { share: 0.5, carried: &[] }];
    let one = [Player { share: 1.0, carried: &[] }];
    let sent = |visit: u32, state: &[f64], rows: &Rows, players: &[Player<'_>], draws: &mut Draws| match task
        .rehearse(visit, state, &mut Stage { rows, predictor: predictor.as_ref(), players, draws })
        .unwrap()
    {
        Sent::Sum(sum) => sum,
        Sent::Changes(_) => panic!("natural gradients are sums"),
    };
    for visit in 0..task.visits() {
        let mut sum = sent(visit, &state, &honest, &two, &mut draws);
        let Some(Shape::Moments(moments)) = of_site(task, visit, MOST, At { state: &state, first: first.as_deref() }).unwrap() else {
            panic!("a sum of moments")
        };
        let longest = |direction: Vec<f64>| {
            let long: Vec<f64> = direction.iter().map(|v| v * 1e9).collect();
            let factor = moments.factor_within(&long);
            long.iter().map(|v| v * factor).collect::<Vec<f64>>()
        };
        let gradient = |of: &[f64]| {
            if visit == 0 { vec![0.0; sum.len()] } else { longest((0..sum.len()).map(|j| if j < d { of[j] } else { 0.0 }).collect()) }
        };
        let lie = match third {
            Third::Nothing => vec![0.0; sum.len()],
            Third::Records => sent(visit, &state, &liars, &one, &mut own),
            Third::Push => gradient(&row),
            Third::Against => gradient(&state[task.family().len()..][..d].iter().map(|mean| -mean).collect::<Vec<f64>>()),
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
        let step = rule.apply(&state, &Arrived { visit, sites: 3, sum: &sum });
        state = step.state;
        rounds.push(ClosedRound { visit, included: vec![0, 1, 2], state: state.clone(), correction: step.correction });
    }
    let aware = of_run(task, &History { shares: vec![0.25, 0.25, 0.5], rounds }).unwrap();
    Gaussian::from_natural(task.family(), aware.natural_parameters).unwrap().standard().mean().to_vec()
}

/// The figures of `deploy/guide/src/threat-model.md`.
#[test]
fn one_liar_moves_the_sample_task_no_farther_than_the_page_says() {
    let task = sample();
    let none = run(&task, Third::Nothing);
    let moved = |third| run(&task, third).iter().zip(&none).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let [records, push, against, negative] = [Third::Records, Third::Push, Third::Against, Third::Negative].map(moved);
    assert!((1.7..2.1).contains(&records), "{records}");
    assert!(push < 2.2 && negative < 2.2 && against < 5.7, "push {push}, negative {negative}, against {against}");
}
