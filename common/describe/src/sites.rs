//! Several sites, and several looks at the same records.

/// Sum of sites' estimates, which sums over records are: estimates and variances add up. Weighting by noise would estimate something else.
///
/// # Panics
/// Lists of different lengths.
#[must_use]
pub fn sum(sites: &[(Vec<f64>, f64)]) -> (Vec<f64>, f64) {
    let mut total = vec![0.0; sites.first().map_or(0, |(estimate, _)| estimate.len())];
    for (estimate, _) in sites {
        add(&mut total, estimate, 1.0);
    }
    (total, sites.iter().map(|(_, sd)| sd * sd).sum::<f64>().sqrt())
}

/// Releases about the same records: weighted by inverse variance, which has the least variance of all unbiased combinations.
///
/// # Panics
/// Lists of different lengths.
#[must_use]
pub fn merge(releases: &[(Vec<f64>, f64)]) -> (Vec<f64>, f64) {
    let weights: f64 = releases.iter().map(|(_, sd)| 1.0 / (sd * sd)).sum();
    let mut merged = vec![0.0; releases.first().map_or(0, |(estimate, _)| estimate.len())];
    for (estimate, sd) in releases {
        add(&mut merged, estimate, 1.0 / (sd * sd * weights));
    }
    (merged, (1.0 / weights).sqrt())
}

fn add(to: &mut [f64], estimate: &[f64], factor: f64) {
    assert_eq!(to.len(), estimate.len(), "releases of the same cells");
    to.iter_mut().zip(estimate).for_each(|(to, x)| *to += factor * x);
}
