//! Conversions and divergences against closed forms, round trips against themselves.
#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::dirichlet;
use dp_pvi_math::expfam::dirichlet::Dirichlet;
use dp_pvi_math::expfam::gamma;
use dp_pvi_math::expfam::gamma::Gamma;
use dp_pvi_math::expfam::gaussian::diagonal;
use dp_pvi_math::expfam::gaussian::diagonal::Diagonal;
use dp_pvi_math::expfam::gaussian::full;
use dp_pvi_math::expfam::gaussian::full::{Full, svec, unsvec};
use dp_pvi_math::expfam::{Distribution, ExponentialFamily, Factor, InvalidParameters};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;

fn close(a: &[f64], b: &[f64], tolerance: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(a.len(), b.len());
    let scale = a.iter().chain(b).fold(1e-300_f64, |m, v| m.max(v.abs()));
    for (x, y) in a.iter().zip(b) {
        prop_assert!((x - y).abs() <= tolerance * scale, "{} against {}", x, y);
    }
    Ok(())
}

/// natural → standard → natural and → mean → natural.
fn round_trip<F: ExponentialFamily>(family: &F, natural: &[f64], through_mean: f64) -> Result<(), TestCaseError> {
    let q = Distribution::from_natural(family.clone(), natural.to_vec()).unwrap();
    prop_assert_eq!(&F::of(q.standard()), family);
    let again = Distribution::<F>::from_standard(q.standard().clone());
    close(again.natural(), natural, 1e-12)?;
    let back = Distribution::from_mean_parameters(family, &q.mean_parameters()).unwrap();
    close(back.natural(), natural, through_mean)?;
    prop_assert!(q.kl(&again).abs() < 1e-10);
    // Fenchel: ⟨λ, E s⟩ − A(λ) = −H, so KL(q‖p) = ⟨λ_q − λ_p, E_q s⟩ − A_q + A_p for every p; here p = a flattened q.
    let p = Distribution::from_natural(family.clone(), q.factor().clone().scale(0.5).into_natural()).unwrap();
    let difference = q.factor().clone() - p.factor();
    let bregman = q.expected_log(&difference) - q.log_partition() + p.log_partition();
    prop_assert!((q.kl(&p) - bregman).abs() <= 1e-9 * (1.0 + bregman.abs()), "{} against {}", q.kl(&p), bregman);
    prop_assert!(q.kl(&p) >= 0.0);
    Ok(())
}

fn spd(entries: &[f64], d: usize) -> DMatrix<f64> {
    let a = DMatrix::from_column_slice(d, d, &entries[..d * d]);
    &a * a.transpose() + DMatrix::identity(d, d)
}

proptest! {
    #[test]
    fn diagonal_gaussians_round_trip(pairs in prop::collection::vec((-1.0..1.0_f64, 0.05..20.0_f64), 1..8)) {
        let (mean, variance): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let standard = diagonal::Standard::new(mean, variance).unwrap();
        round_trip(&Diagonal::of(&standard), &Diagonal::natural(&standard), 1e-12)?;
    }

    #[test]
    fn full_gaussians_round_trip(d in 1..6_usize, entries in prop::collection::vec(-1.0..1.0_f64, 36), h in prop::collection::vec(-1.0..1.0_f64, 6)) {
        let mut natural = h[..d].to_vec();
        natural.extend(svec(&spd(&entries, d)));
        round_trip(&Full { dimension: d }, &natural, 1e-12)?;
        round_trip(&Family::FullGaussian { dimension: d }, &natural, 1e-12)?;
    }

    #[test]
    fn gammas_round_trip(shape in 1.2..20.0_f64, rate in 0.01..100.0_f64) {
        // Shapes above 1 so that half of the natural parameters are valid, too.
        round_trip(&Gamma, &[shape - 1.0, -rate], 1e-12)?;
    }

    #[test]
    fn small_gamma_shapes_come_back_from_mean_parameters(shape in 0.01..1.0_f64, rate in 0.01..100.0_f64) {
        let mean = Gamma::mean(&gamma::Standard::new(shape, rate).unwrap());
        let back = Gamma.standard_of_mean(&mean).unwrap();
        prop_assert!((back.shape() / shape - 1.0).abs() < 1e-12 && (back.rate() / rate - 1.0).abs() < 1e-12);
    }

    #[test]
    fn dirichlets_round_trip(alpha in prop::collection::vec(0.2..20.0_f64, 2..6)) {
        let natural: Vec<f64> = alpha.iter().map(|a| a - 1.0).collect();
        round_trip(&Dirichlet { categories: alpha.len() }, &natural, 1e-12)?;
    }

    #[test]
    fn svec_is_an_isometry(d in 1..7_usize, entries in prop::collection::vec(-5.0..5.0_f64, 49)) {
        let a = spd(&entries, d);
        let b = DMatrix::from_fn(d, d, |i, j| entries[i.min(j) * 7 + i.max(j)]);
        let inner: f64 = svec(&a).iter().zip(svec(&b)).map(|(x, y)| x * y).sum();
        prop_assert!((inner - a.dot(&b)).abs() < 1e-12 * (1.0 + a.norm() * b.norm()));
        prop_assert!((unsvec(&svec(&a), d) - &a).norm() <= 1e-15 * a.norm() * 4.0);
    }

    #[test]
    fn factors_are_a_vector_space(a in prop::collection::vec(-5.0..5.0_f64, 6), b in prop::collection::vec(-5.0..5.0_f64, 6), s in -3.0..3.0_f64) {
        let family = Diagonal { dimension: 3 };
        let (x, y) = (Factor::new(family, a).unwrap(), Factor::new(family, b).unwrap());
        close((x.clone() + &y - &y).natural(), x.natural(), 1e-14)?;
        close((x.clone() + &-x.clone()).natural(), Factor::zero(family).natural(), 1e-14)?;
        close((x.clone() + &y).scale(s).natural(), (x.scale(s) + &y.scale(s)).natural(), 1e-14)?;
    }
}

#[test]
fn factors_of_any_sign_have_an_expected_logarithm_but_no_distribution() {
    let family = Diagonal { dimension: 1 };
    let cavity = Factor::new(family, vec![0.7, -2.0]).unwrap();
    assert!(matches!(Distribution::try_from(cavity.clone()), Err(InvalidParameters::Domain(_))));
    let q = Distribution::<Diagonal>::from_standard(diagonal::Standard::new(vec![0.5], vec![0.25]).unwrap());
    assert!((q.expected_log(&cavity) - (0.7 * 0.5 + 0.25 + 0.25)).abs() < 1e-15);
}

#[test]
fn invalid_parameters_are_refused() {
    let two = Diagonal { dimension: 2 };
    for bad in [vec![0.0, 0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0, f64::NAN], vec![f64::INFINITY, 0.0, 1.0, 1.0], vec![1.0]] {
        assert!(Distribution::from_natural(two, bad).is_err());
    }
    // Indefinite with a positive diagonal.
    let indefinite = vec![0.0, 0.0, 1.0, 2.0 * std::f64::consts::SQRT_2, 1.0];
    assert!(Distribution::from_natural(Full { dimension: 2 }, indefinite.clone()).is_err());
    assert!(Distribution::from_natural(Family::FullGaussian { dimension: 2 }, indefinite).is_err());
    assert!(full::Standard::new(DVector::zeros(2), DMatrix::zeros(2, 2)).is_err());
    assert!(Distribution::from_mean_parameters(&two, &[1.0, 0.0, 0.5, 1.0]).is_err());
    assert!(Distribution::from_natural(Gamma, vec![-1.0, -1.0]).is_err());
    assert!(Gamma.standard_of_mean(&[0.5, 1.0]).is_err(), "E ln x above ln E x");
    assert!(dirichlet::Standard::new(vec![1.0]).is_err());
    assert!(Dirichlet { categories: 2 }.standard_of_mean(&[-0.1, -0.1]).is_err());
}

#[test]
fn projections_of_both_gaussians_agree_on_a_diagonal_covariance() {
    let (indices, values) = ([0_u32, 2], [0.5, -2.0]);
    let diagonal = Family::DiagonalGaussian { dimension: 3 };
    let full = Family::FullGaussian { dimension: 3 };
    for family in [diagonal, full] {
        let q = Distribution::from_natural(family, family.isotropic(0.3, 4.0)).unwrap();
        let (mean, variance) = q.standard().project(&indices, &values);
        assert!((mean + 0.45).abs() < 1e-15 && (variance - 17.0).abs() < 1e-14);
        assert!(q.standard().variances().iter().all(|v| (v - 4.0).abs() < 1e-15));
    }
}

#[test]
fn divergences_of_one_dimension_equal_numerical_integrals() {
    // ∫ q ln(q/p) by the trapezoid rule; Gamma with shapes that vanish smoothly at 0.
    let (q, p) = (gamma::Standard::new(4.0, 2.0).unwrap(), gamma::Standard::new(6.5, 1.5).unwrap());
    let log_density = |s: &gamma::Standard, x: f64| (s.shape() - 1.0) * x.ln() - s.rate() * x - Gamma::log_partition(s);
    let h = 1e-3;
    let integral: f64 =
        (1..60_000).map(|i| f64::from(i) * h).map(|x| log_density(&q, x).exp() * (log_density(&q, x) - log_density(&p, x)) * h).sum();
    assert!((integral - Gamma::kl(&q, &p)).abs() < 1e-9, "{integral} {}", Gamma::kl(&q, &p));
}
