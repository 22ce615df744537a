//! `pg_vb`: variational Bayes with Pólya–Gamma augmentation on the data and prior of `logreg`.

use dp_pvi_inference::capabilities::statistics::polya_gamma::{Blocks, LogisticStatistics, total_bound};
use dp_pvi_inference::capabilities::statistics::total;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_math::polya_gamma::{m_step, mean};

use super::federation::table;
use super::read::{FIXED_POINT, Node, Outcome, message};

/// Rounds at most; the fixed point of 20 records takes about 50.
const ROUNDS: u32 = 5_000;

/// Rounds without noise: Σ x(y−½) in the first, Σ E ω xxᵀ in every one, M-step between them.
pub(crate) fn whole(_root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let logreg = node.top("logreg")?;
    let (x, y) = (logreg.get("X")?.rows()?, logreg.at("y")?);
    let d = x.first().map_or(0, Vec::len);
    let data = table(&x, &y)?;
    let family = Family::FullGaussian { dimension: d };
    let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).map_err(message)?;
    let mut sums = total(&LogisticStatistics::new(&prior, Blocks::Both { first: 1.0, second: 1.0 }, 1.0), &data);
    let mut second = sums.split_off(d);
    let mut q = m_step(&prior, &sums, &second).map_err(message)?;
    for _ in 0..ROUNDS {
        second = total(&LogisticStatistics::new(&q, Blocks::Second { scale: 1.0 }, 1.0), &data);
        let next = m_step(&prior, &sums, &second).map_err(message)?;
        let still = next.natural().iter().zip(q.natural()).all(|(a, b)| (a - b).abs() <= 1e-13 * b.abs().max(1.0));
        q = next;
        if still {
            break;
        }
    }
    let Standard::Full(standard) = q.standard() else { return Err("not a full covariance".into()) };
    node.key_equals("mean", standard.mean().as_slice(), FIXED_POINT)?;
    node.key_equals("cov", standard.covariance().as_slice(), FIXED_POINT)?;
    let statistics = LogisticStatistics::new(&q, Blocks::Second { scale: 1.0 }, 1.0);
    let c: Vec<f64> = data.records().map(|record| statistics.tilt(record)).collect();
    node.key_equals("c", &c, FIXED_POINT)?;
    node.key_equals("E_omega", c.iter().map(|&c| mean(c)).collect::<Vec<_>>(), FIXED_POINT)?;
    node.key_equals("lower_bound", [total_bound(&q, &data) - q.kl(&prior)], FIXED_POINT)
}
