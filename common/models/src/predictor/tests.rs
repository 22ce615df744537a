use super::{Predicted, Predictor, Shape, Statistics, TiltedPredictor};
use crate::likelihood::Likelihood;
use crate::linear_regression::LinearRegression;
use crate::logistic_regression::LogisticRegression;
use crate::negative_binomial_regression::NegativeBinomialRegression;
use crate::poisson_regression::PoissonRegression;
use crate::probit_regression::ProbitRegression;
use crate::robust_regression::Student;

/// Residual and curvature by finite differences of the expected log density.
fn check_derivatives(model: &dyn Predictor, points: &[(f64, f64, f64)]) {
    const H: f64 = 1e-5;
    for &(mean, variance, target) in points {
        let f = |a: f64, v: f64| model.expected_log_density(a, v, target);
        let at = model.statistics(mean, variance, target);
        let residual = (f(mean + H, variance) - f(mean - H, variance)) / (2.0 * H);
        let curvature = -(f(mean, variance + H) - f(mean, variance - H)) / H;
        assert!((residual - at.residual).abs() < 1e-7 && (curvature - at.curvature).abs() < 1e-7, "{residual} {curvature} {at:?}");
    }
}

#[test]
fn expectations_of_the_log_density_have_the_stated_derivatives() {
    let counts = [(0.3, 0.5, 1.0), (-2.0, 3.0, 0.0), (2.0, 0.1, 9.0)];
    check_derivatives(&PoissonRegression {}, &counts);
    for dispersion in [0.3, 1.7, 60.0] {
        check_derivatives(&NegativeBinomialRegression { dispersion }, &counts);
    }
    for (nu, scale) in [(4.0, 0.8), (2.5, 3.0), (200.0, 0.5)] {
        check_derivatives(&Student::new(nu, scale), &counts);
    }
    check_derivatives(&LinearRegression { noise_sd: 0.7 }, &counts);
    let classes = [(0.3, 0.5, 1.0), (-2.0, 3.0, 1.0), (4.0, 0.1, 0.0)];
    check_derivatives(&ProbitRegression {}, &classes);
    check_derivatives(&LogisticRegression {}, &classes);
}

#[test]
fn a_certain_predictor_gives_the_log_density_itself() {
    // The log mass of 3 at rate 2.
    let poisson = PoissonRegression {}.expected_log_density(2f64.ln(), 0.0, 3.0);
    assert!((poisson - (8.0 * (-2f64).exp() / 6.0).ln()).abs() < 1e-12);
    // φ = 1 is the geometric distribution: of 3 at mean 2, (1/3)(2/3)³.
    let geometric = NegativeBinomialRegression { dispersion: 1.0 }.expected_log_density(2f64.ln(), 0.0, 3.0);
    assert!((geometric - (8.0_f64 / 81.0).ln()).abs() < 1e-13);
    // That of t with four degrees of freedom at 0 is 3/8.
    assert!((Student::new(4.0, 0.5).expected_log_density(1.0, 0.0, 1.0) - 0.75_f64.ln()).abs() < 1e-14);
    // ln Φ.
    let probit = ProbitRegression {};
    let tilted = TiltedPredictor::tilted(&probit, 0.7, 0.0, 1.0);
    assert!((probit.expected_log_density(0.7, 0.0, 1.0) - tilted.log_normaliser).abs() < 1e-15);
}

#[test]
fn a_large_dispersion_is_poisson() {
    let (wide, poisson) = (NegativeBinomialRegression { dispersion: 1e6 }, PoissonRegression {});
    let (at, expected) = (wide.statistics(0.4, 0.3, 2.0), poisson.statistics(0.4, 0.3, 2.0));
    assert!((at.residual - expected.residual).abs() < 1e-5 && (at.curvature - expected.curvature).abs() < 1e-5);
    assert!((wide.expected_log_density(0.4, 0.3, 2.0) - poisson.expected_log_density(0.4, 0.3, 2.0)).abs() < 1e-5);
}

/// What a likelihood says of itself is so: curvatures do not depend on anything only where they are those of a normal density, and a log-concave density has none below 0.
#[test]
fn every_likelihood_has_the_shape_that_it_states() {
    for entry in crate::MODELS.all() {
        let options = "noise_sd = 0.7\ndispersion = 1.5\nscale = 0.8";
        let line = options.lines().chain([""]).find_map(|line| {
            let table: toml::Table = line.parse().unwrap();
            crate::ModelFamily::named(crate::registry::Named::name(entry)).unwrap().resolve(&table).ok()
        });
        let Some(Likelihood::Predictor(predictor)) = line.map(|spec| spec.rules().likelihood()) else { continue };
        let points = [(-2.0, 0.0), (1.0, 1.0), (3.0, 1.0), (0.0, 0.0)];
        let curvatures = points.map(|(mean, target)| predictor.statistics(mean, 0.0, target).curvature);
        let constant = curvatures.iter().all(|curvature| (curvature - curvatures[0]).abs() <= 1e-12 * curvatures[0].abs());
        assert_eq!(constant, predictor.has_constant_curvature(), "{entry:?}");
        let concave = |mean: f64, target: f64| {
            let f = |a: f64| predictor.expected_log_density(a, 0.0, target);
            f(mean + 0.1) + f(mean - 0.1) - 2.0 * f(mean) <= 1e-12
        };
        let all = (-50..50).all(|k| concave(0.1 * f64::from(k), 1.0));
        assert_eq!(all, predictor.shape() != Shape::Other, "{entry:?}");
    }
}

#[test]
fn many_predictors_have_the_densities_of_each() {
    let predictors: Vec<Predicted> =
        (0..70).map(|k| Predicted::new((0.1 * f64::from(k) - 3.0, 0.01 * f64::from(k)), f64::from(k % 2))).collect();
    let models: [&dyn Predictor; 3] = [&LogisticRegression {}, &PoissonRegression {}, &Student::new(4.0, 0.8)];
    for model in models {
        let mut densities = vec![0.0];
        model.densities_of_many(&predictors, &mut densities);
        let alone = predictors.iter().map(|at| model.expected_log_density(at.mean, at.variance, at.target).to_bits());
        assert!(densities[1..].iter().map(|density| density.to_bits()).eq(alone));
        let mut together = predictors.clone();
        model.statistics_of_many(&mut together);
        for at in together {
            let Statistics { residual, curvature } = model.statistics(at.mean, at.variance, at.target);
            assert_eq!([at.statistics.residual.to_bits(), at.statistics.curvature.to_bits()], [residual.to_bits(), curvature.to_bits()]);
        }
    }
}

/// ln Z is a function of a and s²; its slopes are α and −β, and the heat equation ties the derivative by s² to both.
fn check_tilted(model: &dyn TiltedPredictor, tolerance: f64) {
    for mean in [-30.0, -6.0, -1.0, 0.0, 0.4, 3.0, 12.0] {
        for variance in [1e-6, 0.04, 1.0, 9.0, 400.0] {
            for target in [0.0, 1.0] {
                let at = model.tilted(mean, variance, target);
                let h = 1e-4;
                let (up, down) = (model.tilted(mean + h, variance, target), model.tilted(mean - h, variance, target));
                let slope = (up.log_normaliser - down.log_normaliser) / (2.0 * h);
                assert!((slope - at.slope).abs() <= tolerance * (1.0 + at.slope.abs()), "{mean} {variance}: {slope} {at:?}");
                let curvature = -(up.slope - down.slope) / (2.0 * h);
                assert!((curvature - at.curvature).abs() <= tolerance, "{mean} {variance}: {curvature} {at:?}");
                // Heat equation: ∂ ln Z/∂s² = ½(α² − β).
                let k = 1e-4 * variance;
                let wide = model.tilted(mean, variance + k, target).log_normaliser;
                let narrow = model.tilted(mean, variance - k, target).log_normaliser;
                let heat = 0.5 * (at.slope * at.slope - at.curvature);
                let spread = (wide - narrow) / (2.0 * k);
                assert!(
                    variance < 0.01 || (spread - heat).abs() <= 100.0 * tolerance * (1.0 + heat.abs()),
                    "{mean} {variance}: {spread} {heat}"
                );
                // Log-concave: the variance shrinks and stays positive.
                assert!(at.curvature >= 0.0 && variance * at.curvature < 1.0, "{mean} {variance} {at:?}");
            }
        }
    }
}

#[test]
fn derivatives_of_log_normalisers_are_consistent() {
    check_tilted(&ProbitRegression {}, 1e-6);
    check_tilted(&LogisticRegression {}, 1e-6);
}

#[test]
fn predictors_as_wide_as_they_come_stay_finite() {
    for (mean, variance) in [(0.0, 1e12), (-1e6, 1.0), (1e6, 1e3), (-1e9, 1e18), (-700.0, 1e-12)] {
        for target in [0.0, 1.0] {
            for model in [&ProbitRegression {} as &dyn TiltedPredictor, &LogisticRegression {}] {
                let at = model.tilted(mean, variance, target);
                assert!(at.log_normaliser <= 0.0 && at.log_normaliser.is_finite() && at.slope.is_finite(), "{mean} {variance} {at:?}");
                assert!(at.curvature >= 0.0 && at.curvature.is_finite());
            }
        }
    }
}
