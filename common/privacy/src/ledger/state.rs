//! What a site carries from round to round, and of which kind it is.
//!
//! A site's state (its factor λ_m, or one factor for each of its shards) is one of two kinds for a whole run, and the kind is part of the
//! type, of the stored bytes and of what the ledger signs:
//!
//! * **public**: a function of released values (DP optimisation, tied factors, local trust). Anyone who has the transcript can
//!   compute it. A public change is a [`Released`] value, so nothing else can become one.
//! * **private-clean**: the site's own clipped contributions before any noise. It never leaves the site, and comes back as
//!   [`Sensitive`] only.
//!
//! A ledger refuses a change of the other kind, so a private state is never read as a public one.
//!
//! # Privacy
//! [`crate::proofs::carried_state`]: a state may depend on the site's data, but never on noise that was not released.
//! A `NoiseShare` cannot become either kind of change, because it can be masked and nothing else.
//!
//! Private words leave this crate, for the store, only under encryption ([`seal`](crate::ledger), a key of the site's identity key), bound to the ledger
//! and to the release or run.
//!
//! How many private words there are is open, in the file and in its copies: encryption hides the words and not their number. Where a method keeps a
//! factor for each unit (`ep`), the number tells how many units the site holds. The ledger itself gives no answer that depends on this
//! length: it never leaves the site, so only anyone who can read the ledger's file learns it.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::ledger::store::StoreError;
use crate::ledger::words::{from_le_bytes, to_le_bytes};
use crate::records::{Released, Sensitive};

/// The change of a site's state that comes with an update: applied, times ρ, iff the update was included.
pub enum Pending {
    /// The method keeps no state, or a tied one that is computed from λ.
    None,
    /// A function of released values.
    Public(Released<Vec<f64>>),
    /// Noise-free own contributions; never sent. Where a panic left no value, or for no numbers at all, the state stays as it is.
    Private(Sensitive<Vec<f64>>),
}

/// A site's state in a run.
pub enum SiteState {
    /// No included update has changed it yet, or the method keeps none: zero.
    None,
    /// A function of released values.
    Public(Vec<f64>),
    /// Sum of noise-free own contributions.
    Private(Sensitive<Vec<f64>>),
}

/// Which of the two a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// A function of released values.
    Public,
    /// Noise-free own contributions.
    Private,
}

/// A state of the kind that was not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the site's state is of another kind or length than this update keeps: it is not of this run")]
pub struct OtherState;

impl Pending {
    /// Kind of the change, if there is one.
    #[must_use]
    pub fn kind(&self) -> Option<StateKind> {
        match self {
            Self::None => None,
            Self::Public(_) => Some(StateKind::Public),
            Self::Private(_) => Some(StateKind::Private),
        }
    }

    /// The change, if it is a public one.
    #[must_use]
    pub fn public(&self) -> Option<&[f64]> {
        match self {
            Self::Public(change) => Some(change.get()),
            Self::None | Self::Private(_) => None,
        }
    }

    /// The numbers, whatever their kind.
    pub(crate) fn numbers(&self) -> Option<&[f64]> {
        match self {
            Self::None => None,
            Self::Public(change) => Some(&change.0),
            // None, too, where the function that should have made it panicked.
            Self::Private(change) => change.value().map(Vec::as_slice),
        }
    }
}

impl SiteState {
    /// Kind of the state, if there is one.
    #[must_use]
    pub fn kind(&self) -> Option<StateKind> {
        match self {
            Self::None => None,
            Self::Public(_) => Some(StateKind::Public),
            Self::Private(_) => Some(StateKind::Private),
        }
    }

    /// The public state with `length` coordinates: zero before the first included update.
    ///
    /// # Errors
    /// The state is private, or has another length.
    pub fn public(&self, length: usize) -> Result<Vec<f64>, OtherState> {
        match self {
            Self::None => Ok(vec![0.0; length]),
            Self::Public(values) if values.len() == length => Ok(values.clone()),
            Self::Public(_) | Self::Private(_) => Err(OtherState),
        }
    }

    /// The private state: `initial` (zeros, usually) before the first included update.
    ///
    /// Its length may itself be private (one factor for each unit), so it is for the caller to compare, inside the gate.
    ///
    /// # Errors
    /// The state is public.
    pub fn private(&self, initial: impl FnOnce() -> Sensitive<Vec<f64>>) -> Result<Sensitive<Vec<f64>>, OtherState> {
        match self {
            Self::None => Ok(initial()),
            Self::Private(values) => Ok(values.value().map_or_else(initial, |values| Sensitive::of(values.clone()))),
            Self::Public(_) => Err(OtherState),
        }
    }

    /// state += ρ·change. Private words that only one of the two has count as zero in the other: whether lengths differ is private, and no answer.
    pub(crate) fn moved(self, pending: &Pending, rho: f64) -> Result<Self, OtherState> {
        let add = |state: Option<Vec<f64>>, change: &[f64]| {
            let mut state = state.unwrap_or_else(|| vec![0.0; change.len()]);
            if state.len() != change.len() {
                return Err(OtherState);
            }
            state.iter_mut().zip(change).for_each(|(t, change)| *t += rho * change);
            Ok(state)
        };
        match (self, pending) {
            (state, Pending::None) => Ok(state),
            (state @ (Self::None | Self::Private(_)), Pending::Private(change)) if change.value().is_none_or(Vec::is_empty) => Ok(state),
            (Self::None, Pending::Public(change)) => add(None, &change.0).map(Self::Public),
            (Self::Public(state), Pending::Public(change)) => add(Some(state), &change.0).map(Self::Public),
            (Self::None, Pending::Private(_)) => {
                add(None, pending.numbers().unwrap_or_default()).map(|state| Self::Private(Sensitive::of(state)))
            }
            (Self::Private(state), Pending::Private(_)) => {
                let mut state = state.into_value().unwrap_or_default();
                let mut change = Zeroizing::new(pending.numbers().unwrap_or_default().to_vec());
                let length = state.len().max(change.len());
                state.resize(length, 0.0);
                change.resize(length, 0.0);
                add(Some(state), &change).map(|state| Self::Private(Sensitive::of(state)))
            }
            (Self::Public(_), Pending::Private(_)) | (Self::Private(_), Pending::Public(_)) => Err(OtherState),
        }
    }

    /// Whether a change of this kind may follow; of a public one, also whether it has the length. The length of a private one is private.
    pub(crate) fn admits(&self, pending: &Pending) -> bool {
        match (self, pending) {
            (Self::None, _) | (_, Pending::None) => true,
            (Self::Public(state), Pending::Public(change)) => state.len() == change.0.len(),
            (Self::Private(_), Pending::Private(_)) => true,
            (Self::Public(_), Pending::Private(_)) | (Self::Private(_), Pending::Public(_)) => false,
        }
    }

    /// Stored bytes: nothing for no state, else version, kind, and little-endian words, encrypted where they are private.
    pub(crate) fn to_bytes(&self, close: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Public(values) => [vec![VERSION, PUBLIC], to_le_bytes(values)].concat(),
            Self::Private(values) => {
                let mut words = values.value().map(|values| to_le_bytes(values)).unwrap_or_default();
                let bytes = [vec![VERSION, PRIVATE], close(&words)].concat();
                words.zeroize();
                bytes
            }
        }
    }

    /// Reads what [`SiteState::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8], open: impl FnOnce(&[u8]) -> Option<Zeroizing<Vec<u8>>>) -> Result<Self, StoreError> {
        let decode = || match bytes {
            [] => Some(Self::None),
            [VERSION, PUBLIC, words @ ..] => from_le_bytes(words).map(Self::Public),
            [VERSION, PRIVATE, sealed @ ..] => from_le_bytes(&open(sealed)?).map(|values| Self::Private(Sensitive::of(values))),
            _ => None,
        };
        decode().ok_or_else(|| StoreError::Corrupt("the site's factor cannot be read".into()))
    }
}

/// Says the kind and never a number.
impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(kind_name(self.kind()))
    }
}

/// Says the kind and never a number.
impl fmt::Debug for SiteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(kind_name(self.kind()))
    }
}

fn kind_name(kind: Option<StateKind>) -> &'static str {
    match kind {
        None => "None",
        Some(StateKind::Public) => "Public(..)",
        Some(StateKind::Private) => "Private(..)",
    }
}

/// Version of the stored bytes.
const VERSION: u8 = 3;
const PUBLIC: u8 = 1;
const PRIVATE: u8 = 2;
