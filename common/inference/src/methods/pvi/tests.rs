use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::observation::Precision;
use dp_pvi_models::robust_regression::RobustRegression;
use dp_pvi_names::Payload;
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{Approximation, ModelSpec, ResolvedTask, ScheduleSpec, UpdateSpec};
use dp_pvi_privacy::{SiteState, Units};

use crate::capabilities::LocalOptimum;
use crate::capabilities::glm::scale_sums;
use crate::methods::{Job, run};
use crate::testing::{SeededNoise, close, permit, random_units, robust, table, task};

const PRIOR: Precision = Precision { shape: 1.5, rate: 0.4 };

/// Three sites, together or one after the other: what they agree on are the coefficients and the scale of all records.
#[test]
fn sites_that_learn_the_scale_end_at_the_optimum_of_all_records() {
    let mut raw = random_units(6, 90, 3);
    for (number, (row, target)) in raw.iter_mut().flatten().enumerate() {
        *target = 0.4 * row[0] - 0.7 * row[1] + 0.5 * *target + if number % 8 == 0 { 3.0 * row[2] } else { 0.0 };
    }
    let sites: Vec<_> = raw.chunks(30).map(|units| table(3, units)).collect();
    let all = table(3, &raw);
    for approximation in [Approximation::MeanField, Approximation::FullCovariance] {
        for together in [true, false] {
            let visits: u32 = if together { 150 } else { 60 };
            let rho = if together { 0.3 } else { 0.8 };
            let schedule =
                if together { ScheduleSpec::Synchronous { rounds: visits } } else { ScheduleSpec::Sequential { sweeps: visits } };
            let model = ModelSpec::from(RobustRegression::learning(4.0, PRIOR));
            let task = ResolvedTask { schedule, damping: vec![rho; visits as usize], ..task(model, approximation, 3, UpdateSpec::Pvi {}) };
            let rule = task.rule();
            let mut state = rule.initial();
            let mut kept = vec![vec![0.0; task.site_state().len()]; sites.len()];
            for visit in 0..visits {
                for group in if together { vec![vec![0, 1, 2]] } else { vec![vec![0], vec![1], vec![2]] } {
                    let mut sum = vec![0.0; kept[0].len()];
                    for &site in &group {
                        let own = SiteState::Public(kept[site].clone());
                        let job = Job { site: None, task: &task, visit, lambda: &state, state: &own };
                        let units = Units::new(sites[site].clone());
                        let output = run(&job, &units, permit(&task.visit_event(visit).unwrap(), visit), &SeededNoise::new(1)).unwrap();
                        let Payload::Values(change) = output.message.released().unwrap().get() else { panic!("values") };
                        sum.iter_mut().zip(change).for_each(|(sum, change)| *sum += change);
                        kept[site].iter_mut().zip(change).for_each(|(kept, change)| *kept += rho * change);
                    }
                    let arrived = VisitSum { visit, sites: u32::try_from(group.len()).unwrap(), sum: &sum };
                    let step = rule.apply(&state, &arrived);
                    assert!(step.correction.is_none());
                    state = step.state;
                }
            }
            let prior = Gaussian::from_natural(task.family(), task.prior_natural()).unwrap();
            let (mut q, mut scale) = (prior.clone(), PRIOR);
            for _ in 0..200 {
                let model = robust(4.0, scale.scale());
                q = LocalOptimum::local_optimum(&model, &all, &prior, &q).unwrap();
                let [count, statistic] = scale_sums(model.0.as_ref(), &all, q.standard());
                scale = PRIOR.and(count, statistic, scale.square());
            }
            let found = task.scale_at(&state).unwrap();
            close(&[found.shape, found.rate], &[scale.shape, scale.rate], 1e-7 * scale.shape);
            let size = q.natural().iter().fold(1.0f64, |m, v| m.max(v.abs()));
            close(task.posterior(&state), q.natural(), 1e-7 * size);
        }
    }
}
