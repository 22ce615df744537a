//! Lemma 1 of [`crate::proofs::cells`] by search over integer terms, and what a sum of cells costs.

use proptest::prelude::*;

use crate::adjacency::{Relation, Terms};
use crate::event::{DiscreteGaussian, DpEvent, LatticePath};
use crate::unit::{Delta, NoiseMultiplier, SamplingRate};
use crate::{AccountantError, Charge, Claim, epsilon_upper};

/// Q(x) where the first `cells` coordinates are cells.
fn size(x: &[i64], cells: usize) -> i128 {
    x.iter().enumerate().map(|(j, x)| i128::from(*x).pow(2) * if j < cells { 1 } else { 2 }).sum()
}

fn distance(x: &[i64], y: &[i64]) -> i128 {
    x.iter().zip(y).map(|(x, y)| (i128::from(*x) - i128::from(*y)).pow(2)).sum()
}

/// All integer terms of three coordinates with Q at most this, with `cells` cells that are at least `least`.
fn terms(bound_squared: i128, cells: usize, least: i64) -> Vec<[i64; 3]> {
    let range = |j: usize| if j < cells { least..=4 } else { -4..=4 };
    let all = range(0).flat_map(|a| range(1).flat_map(move |b| range(2).map(move |c| [a, b, c])));
    all.filter(|x| size(x, cells) <= bound_squared).collect()
}

/// Every pair of terms, for every bound and every number of cells: none is farther apart than √2·B, and some are as far apart as that. With a negative cell there are
/// pairs 2B apart: the check of signs is needed.
#[test]
fn lemma_1_no_pair_of_integer_terms_is_farther_apart() {
    for cells in 0..=3 {
        let mut attained = 0;
        for bound_squared in 1..=16 {
            let all = terms(bound_squared, cells, 0);
            let farthest = all.iter().flat_map(|x| all.iter().map(|y| distance(x, y))).max().unwrap();
            assert!(farthest <= 2 * bound_squared, "{cells} cells, {bound_squared}: {farthest}");
            assert!(all.iter().all(|x| distance(x, &[0; 3]) <= bound_squared));
            attained += usize::from(farthest == 2 * bound_squared);
            let unchecked = terms(bound_squared, cells, -4);
            let broken = unchecked.iter().flat_map(|x| unchecked.iter().map(|y| distance(x, y))).max().unwrap();
            let square = bound_squared.isqrt().pow(2);
            assert!(cells == 0 || broken >= 4 * square, "{cells} cells, {bound_squared}: {broken}");
        }
        assert!(attained >= 2, "{cells} cells: the bound is attained {attained} times");
    }
}

proptest! {
    /// As above for terms of up to twelve coordinates of any size that a lattice holds.
    #[test]
    fn lemma_1_for_long_terms(
        (x, y, cells) in (1usize..12).prop_flat_map(|d| {
            let entries = || proptest::collection::vec(-(1i64 << 31)..1 << 31, d);
            (entries(), entries(), 0..=d)
        })
    ) {
        let kept = |x: &[i64]| -> Vec<i64> { x.iter().enumerate().map(|(j, x)| if j < cells { x.abs() } else { *x }).collect() };
        let (x, y) = (kept(&x), kept(&y));
        prop_assert!(distance(&x, &y) <= size(&x, cells) + size(&y, cells));
        prop_assert!(distance(&x, &vec![0; x.len()]) <= size(&x, cells));
        // The opposite of the signed part, and the same cells: the largest distance for these signed numbers.
        let opposite: Vec<i64> = x.iter().enumerate().map(|(j, x)| if j < cells { 0 } else { -x }).collect();
        prop_assert!(distance(&x, &opposite) <= size(&x, cells) + size(&opposite, cells));
    }
}

fn sum(terms: Terms) -> DpEvent {
    DpEvent::DiscreteGaussian(DiscreteGaussian {
        exponent: -20,
        scale: 4 << 20,
        bound_squared: 1 << 40,
        excess: 0,
        dimension: 9,
        terms,
        path: LatticePath::Term,
    })
}

const CELLS: Terms = Terms::Cells { cells: 7 };

/// Under replace-one cells with B cost what units with B/√2 cost, under add-remove what units with B cost; also of a sum of shares and in a composition.
#[test]
fn cells_cost_half_of_mu_squared_where_a_unit_is_replaced() {
    let delta = Delta::new(1e-5).unwrap();
    let epsilon = |event: &DpEvent, relation| epsilon_upper([event], relation, delta).unwrap().epsilon.get();
    let halved = |event: DpEvent| match event {
        DpEvent::DiscreteGaussian(noise) => DpEvent::DiscreteGaussian(DiscreteGaussian { bound_squared: noise.bound_squared / 2, ..noise }),
        other => other,
    };
    let shared = |event: DpEvent| match event {
        DpEvent::DiscreteGaussian(share) => DpEvent::NoiseShares { share, count: 5 },
        other => other,
    };
    for form in [|event: DpEvent| event, |event: DpEvent| event.repeated(7), shared as fn(DpEvent) -> DpEvent] {
        let (cells, half, units) = (form(sum(CELLS)), form(halved(sum(Terms::Units))), form(sum(Terms::Units)));
        let (of_cells, of_half) = (epsilon(&cells, Relation::ReplaceOne), epsilon(&half, Relation::ReplaceOne));
        assert!((of_cells / of_half - 1.0).abs() < 1e-12, "{of_cells} {of_half}");
        assert!(epsilon(&units, Relation::ReplaceOne) > 1.3 * of_cells);
        assert_eq!(epsilon(&cells, Relation::AddRemove).to_bits(), epsilon(&units, Relation::AddRemove).to_bits());
    }
    let continuous = |terms, z: f64| DpEvent::Gaussian { noise: NoiseMultiplier::new(z).unwrap(), terms };
    let (cells, half) = (continuous(CELLS, 2.0), continuous(Terms::Units, 8f64.sqrt()));
    assert!((epsilon(&cells, Relation::ReplaceOne) / epsilon(&half, Relation::ReplaceOne) - 1.0).abs() < 1e-12);
}

/// Nothing is proved of samples, batches and passes of such a sum, nor of its 1-norm.
#[test]
fn what_is_not_proved_of_cells_is_refused() {
    let delta = Delta::new(1e-5).unwrap();
    let event = || Box::new(sum(CELLS));
    let laplace = DpEvent::Laplace { scale: NoiseMultiplier::new(3.0).unwrap(), terms: CELLS };
    let refused = [
        DpEvent::PoissonSampled { rate: SamplingRate::nearest(0.1).unwrap(), event: event() },
        DpEvent::PoissonSampled { rate: SamplingRate::nearest(1.0).unwrap(), event: event() },
        DpEvent::FixedBatch { batch: 10, units: 100, event: event() },
        DpEvent::FixedBatch { batch: 100, units: 100, event: event() },
        DpEvent::ShuffledPass { event: event() },
        DpEvent::RandomAllocation { batches: 1, event: event() },
        DpEvent::RandomAllocation { batches: 10, event: event() },
        laplace,
    ];
    for event in refused {
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            let charged = Charge::of(&event.clone().repeated(3), relation);
            assert!(matches!(charged, Err(AccountantError::Unsupported(why)) if why.contains("cells")), "{event:?}: {charged:?}");
            assert!(Claim::of_run(&[(event.clone(), 1)], relation, delta).is_err(), "{event:?}");
        }
    }
}
