//! Gradients in units of a clipping norm, with one coordinate that says whether a unit was within it.

use dp_pvi_accounting::ClipNorm;
use dp_pvi_posterior::task::AdaptiveClipSpec;
use dp_pvi_privacy::UnitTable;
use dp_pvi_privacy::mechanism::BatchTerms;
use rand_core::Rng;

/// Terms (a·u/max(C, ‖u‖), ±w/2), of norm at most √(a² + w²/4) = 1: the sign says whether ‖u‖ ≤ C.
///
/// # Privacy
/// Both of [`BatchTerms`]'s promises follow from those of the terms inside: the told norm is computed from the inner one to a few roundings,
/// both parts of a unit are scaled by the mechanism's one factor, and the indicator adds ±w/2 times that factor. The three roundings of a
/// unit's factor here lie within what the promise leaves to plain addition of n terms, (2n+8)u where (n−1)u and a few are used. A unit whose
/// norm is no number tells none, so it has no indicator either.
pub(crate) struct WithIndicator<M> {
    terms: M,
    clip: f64,
    share: f64,
    half: f64,
}

/// Buffers of the terms inside, and the norms and factors of the last batch.
pub(crate) struct Work<W> {
    inner: W,
    norms: Vec<f64>,
    factors: Vec<f64>,
}

impl<M> WithIndicator<M> {
    pub(crate) fn new(terms: M, spec: AdaptiveClipSpec, clip: ClipNorm) -> Self {
        Self { terms, clip: clip.get(), share: spec.gradient_share(), half: 0.5 * spec.weight }
    }
}

impl<T: UnitTable, M: BatchTerms<T>> BatchTerms<T> for WithIndicator<M> {
    type Work = Work<M::Work>;

    fn start(&self, draws: &mut dyn Rng) -> Self::Work {
        Work { inner: self.terms.start(draws), norms: Vec::new(), factors: Vec::new() }
    }

    fn chunk(&self) -> usize {
        self.terms.chunk()
    }

    fn norms(&self, units: &[T::Unit<'_>], words: &[u64], work: &mut Self::Work, norms: &mut Vec<f64>) {
        self.terms.norms(units, words, &mut work.inner, norms);
        work.norms.clear();
        work.norms.extend_from_slice(norms);
        for norm in norms {
            // NaN stays NaN: no norm, no term.
            *norm = if norm.is_finite() { (self.share * (*norm / self.clip).min(1.0)).hypot(self.half) } else { f64::NAN };
        }
    }

    fn add(&self, work: &mut Self::Work, factors: &[f64], sums: &mut [f64]) {
        let Some((indicator, gradient)) = sums.split_last_mut() else { return };
        work.factors.clear();
        for (&factor, &norm) in factors.iter().zip(&work.norms) {
            let used = factor > 0.0;
            work.factors.push(if used { factor * self.share / norm.max(self.clip) } else { 0.0 });
            if used {
                *indicator += factor * if norm <= self.clip { self.half } else { -self.half };
            }
        }
        self.terms.add(&mut work.inner, &work.factors, gradient);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use chacha20::ChaCha20Rng;
    use chacha20::rand_core::SeedableRng;
    use dp_pvi_privacy::UnitTable;
    use dp_pvi_privacy::mechanism::batch::compare;
    use dp_pvi_records::{RecordTable, UnitView};

    use super::*;
    use crate::testing::{anything, table};

    const D: usize = 3;
    const SPEC: AdaptiveClipSpec = AdaptiveClipSpec { expected_units: 40.0, target: 0.5, rate: 0.2, weight: 0.4 };

    /// Terms that are what the records hold, so that their norms are anything; the norm is computed without squaring a number far from 1.
    struct Plain;

    fn length(values: impl Iterator<Item = f64> + Clone) -> f64 {
        let largest = values.clone().fold(0.0f64, |largest, x| largest.max(x.abs()));
        // A power of two in two halves: one alone may be no number.
        let exponent = if largest > 0.0 { largest.log2().floor() as i32 } else { 0 };
        let (half, rest) = (2f64.powi(-exponent / 2), 2f64.powi(-(exponent - exponent / 2)));
        values.map(|x| (x * half * rest).powi(2)).sum::<f64>().sqrt() / half / rest
    }

    impl BatchTerms<RecordTable> for Plain {
        type Work = Vec<Vec<(usize, f64)>>;

        fn start(&self, _draws: &mut dyn Rng) -> Self::Work {
            Vec::new()
        }

        fn chunk(&self) -> usize {
            16
        }

        fn norms(&self, units: &[UnitView<'_>], _words: &[u64], work: &mut Self::Work, norms: &mut Vec<f64>) {
            let entries = |unit: &UnitView<'_>| -> Vec<(usize, f64)> { unit.records().flat_map(|record| record.entries()).collect() };
            *work = units.iter().map(entries).collect();
            norms.extend(work.iter().map(|unit| length(unit.iter().map(|(_, x)| *x))));
        }

        fn add(&self, work: &mut Self::Work, factors: &[f64], sums: &mut [f64]) {
            for (unit, factor) in work.iter().zip(factors).filter(|(_, factor)| **factor != 0.0) {
                unit.iter().for_each(|(at, x)| sums[*at] += factor * x);
            }
        }
    }

    /// Path `sum` over the whole range: whatever the norms inside are, from subnormal numbers to 1e300, and whatever C is, the told norm is that of
    /// what is added, that is at most 1, and the sign says whether the norm inside was within C. A norm beyond double precision adds nothing.
    #[test]
    fn terms_with_an_indicator_keep_their_norm_over_the_whole_range() {
        let mut stream = ChaCha20Rng::seed_from_u64(91);
        let mut units: Vec<Vec<(Vec<f64>, f64)>> = (0..60).map(|_| vec![((0..D).map(|_| anything(&mut stream)).collect(), 0.0)]).collect();
        for size in [5e-324, 1e-300, 1e-200, 1e-160, 1e-30, 1.0, 1e30, 1e154, 1e200, 1e300] {
            units.push(vec![(vec![size; D], 0.0)]);
        }
        let beyond = units.len();
        units.push(vec![(vec![f64::MAX; D], 0.0)]);
        let records = table(D, &units);
        let (mut within, mut cut) = (0, 0);
        for clip in [2f64.powi(-100), 1e-20, 1e-9, 1.0, 1e9, 1e20, 2f64.powi(100)] {
            let terms = WithIndicator::new(Plain, SPEC, ClipNorm::new(clip).unwrap());
            compare(&records, &terms, D + 1, ChaCha20Rng::seed_from_u64).unwrap_or_else(|broken| panic!("{clip:e}: {broken}"));
            for (number, unit) in units.iter().enumerate() {
                let mut draws = ChaCha20Rng::seed_from_u64(0);
                let (mut work, mut reported) = (BatchTerms::<RecordTable>::start(&terms, &mut draws), Vec::new());
                terms.norms(&[records.unit(number)], &[0], &mut work, &mut reported);
                let mut added = vec![0.0; D + 1];
                // The mechanism leaves out whom it was told no norm of.
                let factor = if reported[0].is_finite() { 1.0 } else { 0.0 };
                BatchTerms::<RecordTable>::add(&terms, &mut work, &[factor], &mut added);
                if number == beyond {
                    assert!(reported[0].is_nan() && added.iter().all(|x| *x == 0.0), "{clip:e}: {reported:?} {added:?}");
                    continue;
                }
                let inside = length(unit[0].0.iter().copied());
                let length = length(added.iter().copied());
                assert!((reported[0] - length).abs() <= 1e-14 && length <= 1.0 + 1e-14, "{inside:e}, C = {clip:e}: {reported:?} {length}");
                assert_eq!(added[D] > 0.0, inside <= clip, "{inside:e}, C = {clip:e}");
                assert!((added[D].abs() - 0.5 * SPEC.weight).abs() < 1e-16);
                if inside > clip {
                    assert!(length > 1.0 - 1e-12, "{inside:e}, C = {clip:e}: cut to {length}");
                }
                *(if inside <= clip { &mut within } else { &mut cut }) += 1;
            }
        }
        assert!(within > 100 && cut > 100, "{within} {cut}");
    }
}
