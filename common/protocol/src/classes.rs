//! What predictions of classes were worth: whether probabilities mean what they say and order records, and of several classes how often each was taken for which.

use dp_pvi_models::prediction::largest;

/// Number of equal-mass bins of the calibration error.
pub(crate) const BINS: usize = 15;

/// Predicted probabilities of all classes, and the class that it was.
pub(crate) type Judged = (Vec<f64>, usize);

/// Records by the class that they are of (rows) and the one that was predicted as the most likely (columns).
pub(crate) fn confusion(judged: &[Judged]) -> Vec<Vec<u64>> {
    let classes = classes(judged);
    let mut table = vec![vec![0; classes]; classes];
    for (probabilities, class) in judged {
        if let Some(cell) = table.get_mut(*class).and_then(|row| row.get_mut(largest(probabilities).0)) {
            *cell += 1;
        }
    }
    table
}

/// The bins of every class, as those of two classes. None where a prediction is no probability: such bins say nothing.
pub(crate) fn calibration(judged: &[Judged]) -> Vec<Vec<(f64, f64, u64)>> {
    let bins: Vec<_> = (0..classes(judged)).map(|k| reliability(&mut against(judged, k))).collect();
    let finite = bins.iter().flatten().all(|(p, y, _): &(f64, f64, u64)| p.is_finite() && y.is_finite());
    if finite { bins } else { Vec::new() }
}

/// The mean over the classes of the area under the curve of each against the others; absent where one of them, or all others, are missing.
pub(crate) fn area(judged: &[Judged]) -> Option<f64> {
    let each = (0..classes(judged)).map(|k| {
        let mut against = against(judged, k);
        against.sort_by(|a, b| a.0.total_cmp(&b.0));
        auc(&against)
    });
    let mean = each.sum::<Option<f64>>()? / f64::from(u32::try_from(classes(judged)).ok()?);
    mean.is_finite().then_some(mean)
}

/// Σ_k (p_k − 1[y = k])².
pub(crate) fn squared((probabilities, class): &Judged) -> f64 {
    probabilities.iter().enumerate().map(|(k, p)| (p - indicator(k == *class)).powi(2)).sum()
}

/// Whether the most likely class is the right one.
pub(crate) fn is_right((probabilities, class): &Judged) -> bool {
    largest(probabilities).0 == *class
}

/// The most likely class, as one of two: its probability, and whether it is right.
pub(crate) fn most_likely(judged: &Judged) -> (f64, f64) {
    (largest(&judged.0).1, indicator(is_right(judged)))
}

/// One class against the others.
fn against(judged: &[Judged], class: usize) -> Vec<(f64, f64)> {
    judged.iter().map(|(p, y)| (p.get(class).copied().unwrap_or(f64::NAN), indicator(class == *y))).collect()
}

fn classes(judged: &[Judged]) -> usize {
    judged.first().map_or(0, |(probabilities, _)| probabilities.len())
}

/// Sorts predictions and cuts them into [`BINS`] bins of equal mass. Equal predictions are never cut apart, so that the result does
/// not depend on the order of the records; a bin may then be larger, or vanish.
pub(crate) fn reliability(classes: &mut [(f64, f64)]) -> Vec<(f64, f64, u64)> {
    classes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut bins = Vec::with_capacity(BINS);
    let mut start = 0;
    for bin in 1..=BINS {
        let mut end = (bin * classes.len() / BINS).max(start);
        while end > start && end < classes.len() && tied(classes[end].0, classes[end - 1].0) {
            end += 1;
        }
        if end > start {
            let n = (end - start) as u64;
            let (p, y) = classes[start..end].iter().fold((0.0, 0.0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
            bins.push((p / as_f64(n), y / as_f64(n), n));
        }
        start = end;
    }
    bins
}

/// Whether two neighbouring predictions count as one. Predictions that are equal in exact arithmetic may differ in their last digits.
pub(crate) fn tied(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq() || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// Probability that a random success is predicted higher than a random failure, by ranks. `classes` are sorted by prediction.
pub(crate) fn auc(classes: &[(f64, f64)]) -> Option<f64> {
    let (mut failures, mut successes, mut above) = (0.0, 0.0, 0.0);
    for tie in classes.chunk_by(|a, b| tied(a.0, b.0)) {
        let positive = as_f64(tie.iter().filter(|c| c.1 > 0.5).count() as u64);
        let negative = as_f64(tie.len() as u64) - positive;
        above += positive * (failures + 0.5 * negative);
        failures += negative;
        successes += positive;
    }
    (failures > 0.0 && successes > 0.0).then(|| above / (failures * successes))
}

#[allow(clippy::cast_precision_loss, reason = "a number of records is far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

fn indicator(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[cfg(test)]
mod tests {
    use super::{area, auc, calibration, confusion, reliability};

    #[test]
    fn rows_of_the_confusion_are_what_it_was_and_columns_what_was_said() {
        let judged = [(vec![0.7, 0.2, 0.1], 0), (vec![0.3, 0.4, 0.3], 2), (vec![0.1, 0.1, 0.8], 2), (vec![0.2, 0.5, 0.3], 1)];
        assert_eq!(confusion(&judged), [[1, 0, 0], [0, 1, 0], [0, 1, 1]]);
        assert!(confusion(&[]).is_empty() && calibration(&[]).is_empty() && area(&[]).is_none());
    }

    #[test]
    fn predictions_that_differ_in_their_last_digits_are_tied() {
        let half = [(0.5 - 1e-16, 1.0), (0.5, 0.0), (0.5 + 1e-16, 0.0)];
        assert_eq!(auc(&half), Some(0.5));
        assert_eq!(reliability(&mut half.to_vec()).len(), 1);
        assert_eq!(auc(&[(0.4, 0.0), (0.5, 1.0)]), Some(1.0));
        assert_eq!(auc(&[(1e-20, 0.0), (1e-13, 1.0)]), Some(1.0));
    }

    #[test]
    fn every_class_has_bins_of_its_own() {
        let judged = [(vec![0.75, 0.25], 0), (vec![0.75, 0.25], 1), (vec![0.5, 0.5], 1), (vec![0.75, 0.25], 0)];
        let bins = calibration(&judged);
        assert_eq!(bins[0], [(0.5, 0.0, 1), (0.75, 2.0 / 3.0, 3)]);
        assert_eq!(bins[1], [(0.25, 1.0 / 3.0, 3), (0.5, 1.0, 1)]);
        assert!(calibration(&[(vec![f64::NAN, 0.5], 0)]).is_empty());
    }
}
