//! Variables of the environment that override keys of a configuration: `DP_PVI__SECTION__KEY`.

/// How the names of such variables begin.
pub const PREFIX: &str = "DP_PVI__";

/// Positions of the variables that are at fault where a configuration cannot be read, as far as they can be told: the one without which it can be
/// read, or all where it can only be read without any. None where the file itself is at fault.
#[must_use]
pub fn to_blame<V: Clone>(variables: &[V], reads: impl Fn(&[V]) -> bool) -> Vec<usize> {
    let without = |position: &usize| {
        let mut others = variables.to_vec();
        others.remove(*position);
        reads(&others)
    };
    match (0..variables.len()).find(without) {
        Some(one) => vec![one],
        None if reads(&[]) => (0..variables.len()).collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_without_which_all_is_well_is_at_fault() {
        let even = |variables: &[u32]| variables.iter().all(|v| v % 2 == 0);
        assert_eq!(to_blame(&[2, 3, 4], even), [1]);
        assert_eq!(to_blame(&[3, 2, 5], even), [0, 1, 2], "two of them: all are named");
        assert_eq!(to_blame(&[2, 3], |_| false), [] as [usize; 0], "the file");
        // A key that only a variable gives is needed.
        assert_eq!(to_blame(&[2, 3], |variables| variables.contains(&2) && even(variables)), [1]);
        assert_eq!(to_blame(&[] as &[u32], even), [] as [usize; 0]);
    }
}
