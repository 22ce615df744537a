//! What a registry is: the entries that the program was built with, and those that a program which builds on it adds.

use std::sync::{PoisonError, RwLock};

/// Something that a task names.
pub trait Named {
    /// Its name in `task.toml`.
    fn name(&self) -> &'static str;
}

/// Entries by name. Nothing is ever replaced or removed.
#[derive(Debug)]
pub struct Registry<E: 'static> {
    own: &'static [E],
    added: RwLock<Added<E>>,
}

#[derive(Debug)]
struct Added<E: 'static> {
    entries: Vec<&'static E>,
    sealed: bool,
}

/// Why an entry was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name is taken.
    #[error("{0} is registered already: a name belongs to one entry, give yours another one")]
    Duplicate(&'static str),
    /// It is not the form of a name.
    #[error("{0:?} is no name: use lower-case letters and digits, with one hyphen between words")]
    Name(&'static str),
    /// The registry was in use.
    #[error("{0} comes too late: register before the first visit runs")]
    Sealed(&'static str),
}

impl<E: Named> Registry<E> {
    /// With the entries that the program was built with.
    #[must_use]
    pub const fn new(own: &'static [E]) -> Self {
        Self { own, added: RwLock::new(Added { entries: Vec::new(), sealed: false }) }
    }

    /// All entries: the program's own in the order in which people read them, then the added ones.
    #[must_use]
    pub fn all(&self) -> Vec<&'static E> {
        // Only whole entries are ever pushed, so what a panic leaves behind is in order.
        let added = self.added.read().unwrap_or_else(PoisonError::into_inner);
        self.own.iter().chain(added.entries.iter().copied()).collect()
    }

    /// The entry of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&'static E> {
        self.all().into_iter().find(|entry| entry.name() == name)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The name is taken, or no name, or the registry is sealed.
    pub fn add(&self, entry: &'static E) -> Result<(), RegisterError> {
        let name = entry.name();
        let word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !name.split('-').all(word) {
            return Err(RegisterError::Name(name));
        }
        let mut added = self.added.write().unwrap_or_else(PoisonError::into_inner);
        if self.own.iter().chain(added.entries.iter().copied()).any(|other| other.name() == name) {
            return Err(RegisterError::Duplicate(name));
        }
        if added.sealed {
            return Err(RegisterError::Sealed(name));
        }
        added.entries.push(entry);
        Ok(())
    }

    /// From now on nothing is added: what runs next can read the registry and leave nothing in it.
    pub fn seal(&self) {
        if !self.added.read().unwrap_or_else(PoisonError::into_inner).sealed {
            self.added.write().unwrap_or_else(PoisonError::into_inner).sealed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Named, RegisterError, Registry};

    struct Entry(&'static str);

    impl Named for Entry {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    #[test]
    fn names_are_unique_and_nothing_comes_after_the_seal() {
        static OWN: [Entry; 1] = [Entry("own")];
        static MORE: [Entry; 3] = [Entry("more"), Entry("own"), Entry("late")];
        let registry = Registry::new(&OWN);
        assert_eq!(registry.add(&MORE[0]), Ok(()));
        assert_eq!(registry.add(&MORE[0]), Err(RegisterError::Duplicate("more")));
        assert_eq!(registry.add(&MORE[1]), Err(RegisterError::Duplicate("own")));
        registry.seal();
        assert_eq!(registry.add(&MORE[2]), Err(RegisterError::Sealed("late")));
        assert_eq!(registry.all().iter().map(|entry| entry.0).collect::<Vec<_>>(), ["own", "more"]);
        assert!(registry.find("late").is_none() && registry.find("more").is_some());
    }

    #[test]
    fn a_name_is_words_in_lower_case() {
        static BAD: [Entry; 5] = [Entry(""), Entry("Big"), Entry("two  words"), Entry("a--b"), Entry("\"")];
        let registry = Registry::new(&[]);
        BAD.iter().for_each(|entry| assert_eq!(registry.add(entry), Err(RegisterError::Name(entry.0))));
    }
}
