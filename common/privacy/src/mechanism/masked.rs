//! Values that mean something only in a sum.

/// A value under a mask: to anyone who does not know the mask it is uniformly random. Only [`NoiseShare::mask`](super::NoiseShare::mask) builds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masked<T>(pub(crate) T);

impl<T> Masked<T> {
    /// The masked value.
    #[must_use]
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The masked value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}
