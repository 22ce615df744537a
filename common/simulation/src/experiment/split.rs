//! Held-out units and clients, as in appendix B of the paper on differentially private partitioned variational inference.

use dp_pvi_inference::records::{RecordTable, UnitView};
use dp_pvi_names::Hash;
use dp_pvi_privacy::UnitTable;
use rand_core::Rng;

use super::config::{ClientsSection, Slicing};
use crate::noise::stream;

/// Positions of units.
pub(super) type Positions = Vec<usize>;

/// A split that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Not enough units of a class.
    #[error("kappa asks for more units of one class at the small clients than there are: bring it nearer to 0, or raise rho")]
    Kappa,
}

/// A uniform permutation of `0..n`.
pub(super) fn permutation(n: usize, seed: u64, purpose: &str) -> Positions {
    let mut random = stream(seed, purpose, 0);
    let mut positions: Positions = (0..n).collect();
    for last in (1..n).rev() {
        positions.swap(last, below(&mut random, last + 1));
    }
    positions
}

/// Uniform in `0..n`, without bias.
fn below(random: &mut impl Rng, n: usize) -> usize {
    let n = n as u64;
    let limit = u64::MAX - u64::MAX % n;
    loop {
        let draw = random.next_u64();
        if draw < limit {
            // Below n, which came from a usize.
            return usize::try_from(draw % n).expect("below a usize");
        }
    }
}

/// Cuts off the held-out units: (training, test), both in permuted order.
pub(super) fn hold_out(n: usize, fraction: f64, seed: u64) -> (Positions, Positions) {
    let mut training = permutation(n, seed, "test split");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "0 <= fraction < 1")]
    let test = (n as f64 * fraction).round() as usize;
    let test = training.split_off(n - test);
    (training, test)
}

/// Which units a data set keeps: with a class all of the smaller one and as many of the larger one; at most `limit`.
pub(super) fn kept(n: usize, balanced_by: Option<impl Fn(usize) -> bool>, limit: usize, seed: u64) -> Vec<bool> {
    let mut units = permutation(n, seed, "balance");
    if let Some(class) = balanced_by {
        let positive = units.iter().filter(|&&unit| class(unit)).count();
        let mut left = [positive.min(n - positive); 2];
        units.retain(|&unit| {
            let left = &mut left[usize::from(class(unit))];
            let keep = *left > 0;
            *left = left.saturating_sub(1);
            keep
        });
    }
    let mut kept = vec![false; n];
    units.iter().take(limit).for_each(|&unit| kept[unit] = true);
    kept
}

/// Sizes: the first half of the clients is small, ⌊n/M (1−ρ)⌋, the other large, ⌊n/M (1+ρ)⌋.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "0 <= rho <= 1")]
fn sizes(n: usize, clients: usize, rho: f64) -> Vec<usize> {
    let mean = n as f64 / clients as f64;
    let size = |factor: f64| (mean * factor + 1e-9).floor() as usize;
    (0..clients).map(|client| if client < clients / 2 { size(1.0 - rho) } else { size(1.0 + rho) }).collect()
}

/// Shares the training units out to `clients`. Units that no floor(n/M) covers stay unused, as in the paper.
pub(super) fn share_out(
    training: &[usize],
    class: impl Fn(usize) -> bool,
    clients: usize,
    how: &ClientsSection,
    seed: u64,
) -> Result<Vec<Positions>, SplitError> {
    let sizes = sizes(training.len(), clients, how.rho);
    #[allow(clippy::float_cmp, reason = "0 is the default and means off")]
    let by_class = how.kappa != 0.0;
    match how.slicing {
        Slicing::Hashed => Ok(hashed(training, &sizes, seed)),
        _ if by_class => by_kappa(training, class, &sizes, how.kappa),
        _ => {
            let mut rest = training;
            Ok(sizes.iter().map(|&size| take(&mut rest, size)).collect())
        }
    }
}

fn take(rest: &mut &[usize], size: usize) -> Positions {
    let (slice, after) = rest.split_at(size.min(rest.len()));
    *rest = after;
    slice.to_vec()
}

fn hashed(training: &[usize], sizes: &[usize], seed: u64) -> Vec<Positions> {
    let total: u128 = sizes.iter().map(|&size| size as u128).sum::<u128>().max(1);
    let mut clients = vec![Positions::new(); sizes.len()];
    for &unit in training {
        let hash = Hash::of("dp-pvi simulation client", &[&seed.to_le_bytes(), &(unit as u64).to_le_bytes()]);
        let (word, _) = hash.0.split_first_chunk().unwrap_or((&[0; 8], &[]));
        // A point in [0, total), and the client whose stretch it falls into.
        let mut point = (u128::from(u64::from_le_bytes(*word)) * total) >> 64;
        let owner = sizes.iter().position(|&size| {
            let inside = point < size as u128;
            point = point.saturating_sub(size as u128);
            inside
        });
        if let Some(owner) = owner {
            clients[owner].push(unit);
        }
    }
    clients
}

/// Small clients get a share λ + (1−λ)κ of the majority class, large ones what is left, at random.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "shares in [0, 1]")]
fn by_kappa(training: &[usize], class: impl Fn(usize) -> bool, sizes: &[usize], kappa: f64) -> Result<Vec<Positions>, SplitError> {
    let positive = training.iter().filter(|&&unit| class(unit)).count();
    let majority = 2 * positive >= training.len();
    let lambda = positive.max(training.len() - positive) as f64 / training.len().max(1) as f64;
    let target = (lambda + (1.0 - lambda) * kappa).clamp(0.0, 1.0);
    let (mut major, mut minor): (Vec<_>, Vec<_>) = (0..training.len()).partition(|&i| class(training[i]) == majority);
    major.reverse();
    minor.reverse();
    let small = sizes.len() / 2;
    let mut clients = Vec::with_capacity(sizes.len());
    for &size in &sizes[..small] {
        let from_major = (size as f64 * target).round() as usize;
        if from_major > major.len() || size - from_major > minor.len() {
            return Err(SplitError::Kappa);
        }
        let mut own = major.split_off(major.len() - from_major);
        own.extend(minor.split_off(minor.len() - (size - from_major)));
        clients.push(own.into_iter().map(|i| training[i]).collect());
    }
    // The training units are in random order already.
    let mut left: Vec<usize> = major.into_iter().chain(minor).collect();
    left.sort_unstable();
    let left: Vec<usize> = left.into_iter().map(|i| training[i]).collect();
    let mut rest = left.as_slice();
    clients.extend(sizes[small..].iter().map(|&size| take(&mut rest, size)));
    Ok(clients)
}

/// The units at some positions, as a table of their own.
pub(super) fn select(table: &RecordTable, positions: &[usize]) -> RecordTable {
    let mut selected = RecordTable::builder(table.dimension());
    for &position in positions {
        selected.start_unit();
        for record in table.unit(position).records() {
            // Part of a table that was built from valid rows, under the same limits.
            selected.push_record(record).expect("rows of a table fit a table");
        }
    }
    selected.finish()
}

/// Whether a unit's first record is of class 1.
pub(super) fn is_positive(unit: UnitView<'_>) -> bool {
    unit.records().next().is_some_and(|record| record.target > 0.5)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn how(rho: f64, kappa: f64, slicing: Slicing) -> ClientsSection {
        ClientsSection { number: Some(10), rho, kappa, slicing, column: None, values: Vec::new() }
    }

    fn all(clients: &[Positions]) -> Positions {
        let mut all: Positions = clients.iter().flatten().copied().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn the_test_split_is_a_seeded_partition() {
        let (training, test) = hold_out(48_842, 0.2, 1);
        assert_eq!((training.len(), test.len()), (39_074, 9768));
        assert_eq!(all(&[training.clone(), test]), (0..48_842).collect::<Vec<_>>());
        assert_eq!(hold_out(48_842, 0.2, 1).0, training);
        assert_ne!(hold_out(48_842, 0.2, 2).0, training);
    }

    /// Tables 2 and 4 of the paper: sizes and class shares of Adult-like data with 76 % negatives.
    #[test]
    fn rho_and_kappa_give_the_papers_splits() {
        let n = 39_074;
        let class = |unit: usize| unit % 100 >= 76;
        let (training, _) = hold_out(n, 0.0, 3);
        for (rho, kappa, size, small, large) in
            [(0.75, 0.95, 976, 0.988, 0.727), (0.7, -3.0, 1172, 0.04, 0.887), (0.0, 0.5, 3907, 0.88, 0.64)]
        {
            let clients = share_out(&training, class, 10, &how(rho, kappa, Slicing::Contiguous), 3).unwrap();
            let share = |clients: &[Positions]| {
                let units: Vec<_> = clients.iter().flatten().collect();
                units.iter().filter(|&&&unit| !class(unit)).count() as f64 / units.len() as f64
            };
            assert_eq!(clients[0].len(), size);
            assert!((share(&clients[..5]) - small).abs() < 0.01, "{}", share(&clients[..5]));
            assert!((share(&clients[5..]) - large).abs() < 0.01, "{}", share(&clients[5..]));
            let used = all(&clients);
            assert!(used.windows(2).all(|pair| pair[0] < pair[1]), "a unit has two clients");
            assert!(used.len() > n - 10);
        }
        assert_eq!(share_out(&training, class, 10, &how(0.0, -3.0, Slicing::Contiguous), 3), Err(SplitError::Kappa));
    }

    #[test]
    fn a_balanced_data_set_keeps_the_smaller_class_and_as_many_others() {
        let class = |unit: usize| unit.is_multiple_of(10);
        let balanced = |limit, seed| kept(1000, Some(class), limit, seed);
        let count = |kept: &[bool], positive: bool| (0..1000).filter(|&unit| kept[unit] && class(unit) == positive).count();
        let all = balanced(usize::MAX, 4);
        assert_eq!((count(&all, true), count(&all, false)), (100, 100));
        assert_eq!(balanced(usize::MAX, 4), all);
        assert_ne!(balanced(usize::MAX, 5), all);
        let some = balanced(50, 4);
        assert_eq!(count(&some, true) + count(&some, false), 50);
        assert!((0..1000).all(|unit| all[unit] || !some[unit]));
    }

    #[test]
    fn hashed_slices_follow_the_sizes_and_no_unit_moves_when_another_goes() {
        let training: Positions = (0..20_000).collect();
        let clients = share_out(&training, |_| false, 10, &how(0.5, 0.0, Slicing::Hashed), 5).unwrap();
        assert_eq!(all(&clients), training);
        assert!(clients[..5].iter().all(|c| c.len().abs_diff(1000) < 150) && clients[5..].iter().all(|c| c.len().abs_diff(3000) < 250));
        let fewer: Positions = (0..20_000).filter(|unit| *unit != 77).collect();
        let after = hashed(&fewer, &sizes(20_000, 10, 0.5), 5);
        for (before, after) in clients.iter().zip(&after) {
            assert!(before.iter().filter(|unit| **unit != 77).eq(after));
        }
    }
}
