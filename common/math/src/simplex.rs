//! Euclidean projection onto the scaled simplex {s ≥ 0, Σs = S}.
//!
//! Offered for statistics whose total is public. For the word statistics of topic models clamping at 0 is better: its bias acts as smoothing, where the projection leaves isolated spikes of noise.

/// Projects all entries together: s = max(x − t, 0) with the one threshold t for which the sum is `total`. With a total of 0 or less,
/// or entries that are not finite, all are 0 or an equal share.
#[must_use]
pub fn project(values: &[f64], total: f64) -> Vec<f64> {
    if values.is_empty() {
        return Vec::new();
    }
    if values.iter().any(|v| !v.is_finite()) || total <= 0.0 {
        #[allow(clippy::cast_precision_loss, reason = "a number of statistics is far below 2^52")]
        return vec![total.max(0.0) / values.len() as f64; values.len()];
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut threshold, mut count) = (0.0, f64::NEG_INFINITY, 0.0);
    for &value in &sorted {
        sum += value;
        count += 1.0;
        let candidate = (sum - total) / count;
        // The largest entries stay while they are above the threshold that they give.
        if value <= candidate {
            break;
        }
        threshold = candidate;
    }
    values.iter().map(|v| (v - threshold).max(0.0)).collect()
}

/// The weights divided by their sum.
#[must_use]
pub fn normalised(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let weights: Vec<f64> = weights.collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::project;
    use proptest::prelude::*;

    proptest! {
        /// The projection is the feasible point with x − s ≤ t everywhere and equality where s > 0 (the optimality conditions).
        #[test]
        fn results_are_feasible_and_optimal(x in prop::collection::vec(-10.0..10.0_f64, 1..30), total in 0.01..50.0_f64) {
            let s = project(&x, total);
            prop_assert!(s.iter().all(|v| *v >= 0.0) && (s.iter().sum::<f64>() - total).abs() < 1e-9);
            let t = x.iter().zip(&s).filter(|(_, s)| **s > 0.0).map(|(x, s)| x - s).next().unwrap_or(f64::NAN);
            for (x, s) in x.iter().zip(&s) {
                prop_assert!(x - s <= t + 1e-9 && (*s == 0.0 || (x - s - t).abs() < 1e-9));
            }
            let again = project(&s, total);
            prop_assert!(again.iter().zip(&s).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }

    #[test]
    fn degenerate_inputs_give_a_point_of_the_simplex() {
        assert_eq!(project(&[], 1.0), Vec::<f64>::new());
        assert_eq!(project(&[f64::NAN, 1.0], 4.0), vec![2.0, 2.0]);
        assert_eq!(project(&[3.0, 1.0], 0.0), vec![0.0, 0.0]);
    }
}
