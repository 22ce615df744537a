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

    fn norms(&self, units: &[T::Unit<'_>], draws: &mut dyn Rng, work: &mut Self::Work, norms: &mut Vec<f64>) {
        self.terms.norms(units, draws, &mut work.inner, norms);
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
