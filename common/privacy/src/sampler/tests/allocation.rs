//! Random allocation against what it promises: a partition, uniform, of independent draws.

use super::stream;
use crate::sampler::Allocation;

/// The batch of every unit; every unit is in exactly one, in ascending order, and batches beyond the last are empty.
fn places(allocation: &Allocation, batches: u32, units: usize) -> Vec<u32> {
    let mut places = vec![None; units];
    for number in 0..batches {
        let batch = allocation.batch(number);
        assert!(batch.windows(2).all(|pair| pair[0] < pair[1]));
        for &unit in batch {
            assert_eq!(places[unit].replace(number), None, "unit {unit} is in two batches");
        }
    }
    assert!(allocation.batch(batches).is_empty() && allocation.batch(u32::MAX).is_empty());
    places.into_iter().map(|place| place.expect("every unit is in a batch")).collect()
}

/// (χ² − freedom)/√(2 freedom) of cells that are equally likely.
fn chi_square(cells: &[u32], draws: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let (expected, freedom) = (draws as f64 / cells.len() as f64, cells.len() as f64 - 1.0);
    let chi: f64 = cells.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// All pairs (own batch, batch of the next unit) and (own batch, own batch in the next epoch) are equally likely.
#[test]
fn every_unit_is_in_one_batch_uniformly_and_independently_of_others_and_of_other_epochs() {
    let units = 300_000;
    for (seed, batches) in [(31, 2u32), (32, 3), (33, 7), (34, 64), (35, 100)] {
        let mut rng = stream(seed);
        let epoch = |rng: &mut _| places(&Allocation::draw(rng, batches, units), batches, units);
        let (first, second) = (epoch(&mut rng), epoch(&mut rng));
        let mut alone = vec![0u32; batches as usize];
        let (mut neighbours, mut epochs) = (vec![0u32; (batches * batches) as usize], vec![0u32; (batches * batches) as usize]);
        for unit in 0..units {
            alone[first[unit] as usize] += 1;
            epochs[(first[unit] * batches + second[unit]) as usize] += 1;
            if unit % 2 == 0 {
                neighbours[(first[unit] * batches + first[unit + 1]) as usize] += 1;
            }
        }
        for (what, z) in [
            ("alone", chi_square(&alone, units)),
            ("neighbours", chi_square(&neighbours, units / 2)),
            ("epochs", chi_square(&epochs, units)),
        ] {
            assert!(z.abs() < 4.0, "{batches} batches, {what}: {z}");
        }
    }
}

#[test]
fn nothing_of_an_allocation_is_printed() {
    let text = format!("{:?}", Allocation::draw(&mut stream(36), 5, 40));
    assert_eq!(text, "Allocation { .. }");
    assert_eq!(Allocation::draw(&mut stream(36), 5, 0).units(), 0);
}
