//! Local-only results: computed from the site's records without noise, shown at the site, and never sent.
//!
//! A result without noise must not leave under another name or in a later release. Three things keep this exit apart from every release:
//!
//! * **Process.** For its whole life a process either charges a ledger ([`Ledger::reserve`](crate::Ledger::reserve)) or has local access
//!   ([`LocalAccess::instead_of_releases`]). The first of the two bars the other. So a process that releases never holds such a result.
//! * **Type.** The result is [`LocalOnly`], not a [`Released`](crate::Released) value: no message, state or argument of the gate can be made of it. It
//!   cannot be printed, copied or serialised; its content is reached by [`LocalOnly::reveal`] alone.
//! * **Place.** The right is made in one file of the workspace and used in one, and neither can reach the network. A test over the sources checks that.
//!
//! # Privacy
//! None: ε = ∞ for anyone who sees the result. That is the site, which holds the records. Nothing is charged, because nothing is released.

use std::sync::OnceLock;

use crate::records::Sensitive;

/// What this process does with private values, for its whole life.
static PART: OnceLock<Part> = OnceLock::new();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Charges,
    LocalAccess,
}

impl Part {
    /// Whether this is the part of this process, which it is from now on if there was none.
    fn taken(self, part: &OnceLock<Self>) -> bool {
        *part.get_or_init(|| self) == self
    }
}

/// This process charges a ledger, and never looks.
pub(crate) fn charges() -> Result<(), OtherPart> {
    if Part::Charges.taken(&PART) { Ok(()) } else { Err(OtherPart) }
}

/// The right to look at one private value by the site's own people. It cannot be copied, and is used up.
pub struct LocalAccess(());

impl LocalAccess {
    /// This process looks, and from now on charges no ledger.
    ///
    /// # Errors
    /// It has charged one already.
    pub fn instead_of_releases() -> Result<Self, OtherPart> {
        if Part::LocalAccess.taken(&PART) { Ok(Self(())) } else { Err(OtherPart) }
    }
}

/// A process that charges looks at nothing, and one that looks charges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one process either takes part in runs or looks at its site's records without noise, and never does both: start another one")]
pub struct OtherPart;

/// A value without any protection, for the people of the site that holds the records.
///
/// It has neither `Debug` nor `Clone` nor serialisation, and no function of the gate takes it.
pub struct LocalOnly<T>(T);

impl<T> LocalOnly<T> {
    /// The value. It must not leave the site in any form.
    #[must_use]
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> LocalOnly<Option<T>> {
    /// The value, if it holds one.
    #[must_use]
    pub fn transpose(self) -> Option<LocalOnly<T>> {
        self.0.map(LocalOnly)
    }
}

impl<T> Sensitive<T> {
    /// Takes the value out of the gate for the site's own people; `None` where the function that should have made it panicked.
    #[must_use]
    pub fn into_local_only(self, access: LocalAccess) -> Option<LocalOnly<T>> {
        let LocalAccess(()) = access;
        self.into_value().map(LocalOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_process_is_its_only_one() {
        for (first, other) in [(Part::Charges, Part::LocalAccess), (Part::LocalAccess, Part::Charges)] {
            let process = OnceLock::new();
            assert!(first.taken(&process) && !other.taken(&process));
            assert!(first.taken(&process) && !other.taken(&process), "for good");
        }
    }

    #[test]
    fn a_panic_leaves_nothing_to_look_at() {
        let private = Sensitive::of(vec![70.01]);
        let nothing = crate::Argument::nothing();
        assert_eq!(private.map(&nothing, |(), values| values[0]).into_local_only(LocalAccess(())).map(|seen| *seen.reveal()), Some(70.01));
        assert!(private.map(&nothing, |(), values| values[1]).into_local_only(LocalAccess(())).is_none());
    }
}
