//! Vectors as bytes.

/// A vector as little-endian words.
pub(crate) fn to_le_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What [`to_le_bytes`] wrote.
pub(crate) fn from_le_bytes(bytes: &[u8]) -> Option<Vec<f64>> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    Some(words.iter().map(|w| f64::from_le_bytes(*w)).collect())
}
