//! Payloads in chunks: checking one while it arrives, and summing those of a round, both in O(d) memory.
//!
//! # What a site that lies can send
//! * A *lattice* payload under local trust is one noised sum of clipped terms. It is compared with the public bound of that sum
//!   ([`SumBound`](dp_pvi_privacy::mechanism::SumBound)), from the units that the site declared and the task's mechanism, while it arrives: a liar moves a
//!   sum by at most what so many honest records and their noise could. The task's `max_units` bounds what may be declared.
//!   A sum of moments has a [`Shape`](crate::shape) as well: no direction of its curvature is negative by more than the noise, and gradient and curvature
//!   together are no larger than the declared units have. Effects of other sites are not its own to fill: a number there that is not 0 is refused.
//! * A *masked* payload says nothing alone. The unmasked sum of all sites is compared with the bound of its shares; out of it the round ends, and
//!   no one is named, since no one knows whose vector it was.
//! * A *values* payload is a function of several noised sums and of public values (DP optimisation), or has no noise at all (`pvi`). With it the state of its round
//!   must give a distribution, the site's own fit. With protection it stays within a public trust region in units of the declared records. Without protection nothing more is
//!   known of it: one site that lies there can put the posterior nearly where it likes, and only held-out metrics show it.
//!
//! A payload that is refused names its sender in the server's log and events; the round waits for another one until its deadline.

use crate::shape::{Misfit, ShapeCheck};
use dp_pvi_names::{Hash, PayloadKind};
use dp_pvi_privacy::mechanism::SumCheck;
use dp_pvi_secagg::commitment::Committer;

use crate::coordinator::Expected;
use crate::message::PayloadHasher;

/// Largest magnitude of a coordinate of [`PayloadKind::Values`]: far above any natural parameter of a sane model, and small
/// enough that sums and squares of thousands of them stay finite.
pub(crate) const MAX_MAGNITUDE: f64 = 1e100;

/// A payload that is not what its update announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Too short or too long.
    #[error("the payload does not have the announced length")]
    Length,
    /// NaN, infinity, or out of any sensible range.
    #[error("the payload holds a number that is not finite or is out of range; the site should look at its model and data")]
    NotFinite,
    /// A vector that no honest site can have.
    #[error(
        "the payload is longer than the sum of the declared units and its noise can be; the site should look at its declared number of units"
    )]
    OutOfBounds,
    /// A vector that no records of so many units give.
    #[error(
        "the payload is none of a site with the declared number of units: {0}; the site should look at that number, at its model and at its data"
    )]
    Shape(#[from] Misfit),
    /// A number for an effect of another site.
    #[error("the payload has numbers for the effects of other sites; the site should look at its name in the task's list of sites")]
    Foreign,
    /// Other bytes.
    #[error("the payload's hash is not the announced one")]
    Hash,
    /// Another masked vector.
    #[error("the masked vector is not the one that its commitment names")]
    Commitment,
    /// Not the coordinates or kind of the sum.
    #[error("the payload has another kind or number of coordinates than the round's others")]
    Mismatch,
}

/// Checks a payload chunk by chunk while it is written to disk.
#[derive(Clone)]
pub struct PayloadCheck {
    expected: Expected,
    hasher: PayloadHasher,
    words: Words,
    received: u64,
    /// Of a masked payload: its commitment in the making.
    committer: Option<Committer>,
    /// Of a lattice payload: its coordinates and norm so far.
    sum: Option<SumCheck>,
    /// What the payload's numbers tell together, so far.
    shape: Option<ShapeCheck>,
    /// Coordinates of a lattice payload so far, and how many of the site's own are among them.
    seen: (u64, usize),
}

impl std::fmt::Debug for PayloadCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadCheck").field("expected", &self.expected).field("received", &self.received).finish_non_exhaustive()
    }
}

impl PayloadCheck {
    /// Starts a check.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        let hasher = PayloadHasher::new(expected.kind, expected.bytes());
        let committer = expected.commitment.as_ref().map(|committed| Committer::new(&committed.salt, &committed.header, &committed.client));
        let lattice = matches!(expected.kind, PayloadKind::Lattice { .. });
        let sum = expected.bound.filter(|_| lattice).map(dp_pvi_privacy::mechanism::SumBound::check);
        let shape = expected.shape.clone().map(crate::shape::Shape::check);
        Self { expected, hasher, words: Words::default(), received: 0, committer, sum, shape, seen: (0, 0) }
    }

    /// The next chunk, of any length.
    ///
    /// # Errors
    /// More bytes than announced, a value that is not finite, or a lattice vector out of its bound.
    pub fn update(&mut self, chunk: &[u8]) -> Result<(), PayloadError> {
        self.received += chunk.len() as u64;
        if self.received > self.expected.bytes() {
            return Err(PayloadError::Length);
        }
        self.hasher.update(chunk);
        if let Some(committer) = &mut self.committer {
            committer.update(chunk);
        }
        if self.expected.kind == PayloadKind::Values {
            let (mut fine, shape) = (true, &mut self.shape);
            self.words.feed(chunk, |word| {
                let value = f64::from_le_bytes(word);
                fine &= value.abs() <= MAX_MAGNITUDE;
                if let Some(shape) = shape {
                    shape.add(value);
                }
            });
            if !fine {
                return Err(PayloadError::NotFinite);
            }
        }
        if let (Some(sum), PayloadKind::Lattice { exponent }) = (&mut self.sum, self.expected.kind) {
            let (shape, step) = (&mut self.shape, 2f64.powi(exponent));
            let (own, (position, passed)) = (self.expected.places.as_deref(), &mut self.seen);
            let mut foreign = false;
            self.words.feed(chunk, |word| {
                let value = i64::from_le_bytes(word);
                sum.add(value);
                if let Some(shape) = shape {
                    #[allow(clippy::cast_precision_loss, reason = "compared with bounds that have room for it")]
                    shape.add(value as f64 * step);
                }
                if let Some(own) = own {
                    let mine = own.get(*passed).is_some_and(|place| u64::from(*place) == *position);
                    *passed += usize::from(mine);
                    foreign |= !mine && value != 0;
                }
                *position += 1;
            });
            if !sum.fits() {
                return Err(PayloadError::OutOfBounds);
            }
            if foreign {
                return Err(PayloadError::Foreign);
            }
        }
        Ok(())
    }

    /// The end of the payload.
    ///
    /// # Errors
    /// Fewer bytes than announced, or other bytes.
    pub fn finish(self) -> Result<(), PayloadError> {
        if self.received != self.expected.bytes() {
            return Err(PayloadError::Length);
        }
        if self.hasher.finish() != self.expected.payload {
            return Err(PayloadError::Hash);
        }
        if let (Some(committer), Some(committed)) = (self.committer, &self.expected.commitment)
            && !committer.finish().matches(&committed.commitment)
        {
            return Err(PayloadError::Commitment);
        }
        Ok(self.shape.map_or(Ok(()), ShapeCheck::finish)?)
    }
}

/// Cuts chunks of any length into 8-byte words.
#[derive(Debug, Clone, Default)]
struct Words {
    rest: [u8; 8],
    filled: usize,
}

impl Words {
    fn feed(&mut self, mut chunk: &[u8], mut word: impl FnMut([u8; 8])) {
        if self.filled > 0 {
            let take = chunk.len().min(8 - self.filled);
            self.rest[self.filled..self.filled + take].copy_from_slice(&chunk[..take]);
            self.filled += take;
            chunk = &chunk[take..];
            if self.filled < 8 {
                return;
            }
            word(self.rest);
            self.filled = 0;
        }
        let (words, rest) = chunk.as_chunks::<8>();
        words.iter().for_each(|w| word(*w));
        self.rest[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }
}

/// ΣΔ of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// The round.
    pub round: u32,
    /// The clients whose payloads are in it, ascending, with the hashes of their update messages.
    pub included: Vec<(dp_pvi_names::ClientId, Hash)>,
    /// The sum.
    pub total: SumTotal,
}

/// What was summed.
#[derive(Debug, Clone, PartialEq)]
pub enum SumTotal {
    /// Numbers.
    Values(Vec<f64>),
    /// Words mod 2⁶⁴ that still carry the sum of the masks, little-endian.
    Masked(Vec<u8>),
}

/// Sums the payloads of a round. Lattice payloads are added exactly, as integers; values in the order in which they come,
/// which the round fixes (clients ascending), so that a repeated sum has the same bits.
#[derive(Debug)]
pub struct Accumulator {
    close: crate::coordinator::Close,
    total: Total,
    /// Payloads finished.
    done: usize,
    /// Coordinates of the current payload.
    position: usize,
    words: Words,
}

#[derive(Debug)]
enum Total {
    Lattice(Vec<i128>),
    Values(Vec<f64>),
    Masked(Vec<u64>),
}

impl Accumulator {
    /// An empty sum.
    #[must_use]
    pub fn new(close: crate::coordinator::Close) -> Self {
        // A task asks for at most 2^26 numbers; the vector must be held anyway.
        let coordinates = usize::try_from(close.coordinates).expect("coordinates fit the address space");
        let total = match close.kind {
            PayloadKind::Lattice { .. } => Total::Lattice(vec![0; coordinates]),
            PayloadKind::Values => Total::Values(vec![0.0; coordinates]),
            PayloadKind::Masked { .. } => Total::Masked(vec![0; coordinates]),
        };
        Self { close, total, done: 0, position: 0, words: Words::default() }
    }

    /// The client whose payload must come next (with the hash of its update message); `None` when all came.
    #[must_use]
    pub(crate) fn wants(&self) -> Option<&(dp_pvi_names::ClientId, Hash)> {
        self.close.included.get(self.done)
    }

    /// The next bytes of that client's payload.
    ///
    /// # Errors
    /// More bytes than the round has coordinates.
    pub fn add(&mut self, chunk: &[u8]) -> Result<(), PayloadError> {
        let Self { total, position, words, .. } = self;
        let mut fits = true;
        words.feed(chunk, |word| {
            match total {
                Total::Lattice(sum) => match sum.get_mut(*position) {
                    Some(slot) => *slot += i128::from(i64::from_le_bytes(word)),
                    None => fits = false,
                },
                Total::Values(sum) => match sum.get_mut(*position) {
                    Some(slot) => *slot += f64::from_le_bytes(word),
                    None => fits = false,
                },
                Total::Masked(sum) => match sum.get_mut(*position) {
                    Some(slot) => *slot = slot.wrapping_add(u64::from_le_bytes(word)),
                    None => fits = false,
                },
            }
            *position += 1;
        });
        if fits { Ok(()) } else { Err(PayloadError::Mismatch) }
    }

    /// The end of that client's payload.
    ///
    /// # Errors
    /// Fewer bytes than the round has coordinates.
    pub(crate) fn end_of_payload(&mut self) -> Result<(), PayloadError> {
        if self.position as u64 != self.close.coordinates || self.words.filled != 0 {
            return Err(PayloadError::Mismatch);
        }
        self.position = 0;
        self.done += 1;
        Ok(())
    }

    /// The sum of all payloads.
    ///
    /// # Errors
    /// A payload is missing.
    pub fn finish(self) -> Result<Sum, PayloadError> {
        if self.wants().is_some() || self.position != 0 {
            return Err(PayloadError::Mismatch);
        }
        let total = match (self.total, self.close.kind) {
            (Total::Lattice(sum), PayloadKind::Lattice { exponent }) => {
                let step = 2f64.powi(exponent);
                #[allow(clippy::cast_precision_loss, reason = "post-processing of an exact sum, rounded once")]
                SumTotal::Values(sum.into_iter().map(|x| x as f64 * step).collect())
            }
            (Total::Values(sum), _) => SumTotal::Values(sum),
            (Total::Masked(sum), _) => SumTotal::Masked(sum.iter().flat_map(|word| word.to_le_bytes()).collect()),
            (Total::Lattice(_), _) => return Err(PayloadError::Mismatch),
        };
        Ok(Sum { round: self.close.round, included: self.close.included, total })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use dp_pvi_names::ClientId;
    use proptest::prelude::*;

    use super::*;
    use crate::coordinator::Close;
    use crate::message::payload_hash;

    fn expected(kind: PayloadKind, bytes: &[u8]) -> Expected {
        Expected {
            kind,
            coordinates: bytes.len() as u64 / 8,
            payload: payload_hash(kind, bytes),
            commitment: None,
            bound: None,
            shape: None,
            places: None,
        }
    }

    fn close(kind: PayloadKind, coordinates: u64, clients: usize) -> Close {
        let included = (0..clients).map(|i| (ClientId::new(format!("c{i:03}")).unwrap(), Hash::default())).collect();
        Close { round: 0, kind, coordinates, included }
    }

    fn sum(kind: PayloadKind, payloads: &[Vec<u8>], chunk: usize) -> Vec<f64> {
        let mut sum = Accumulator::new(close(kind, payloads[0].len() as u64 / 8, payloads.len()));
        for payload in payloads {
            payload.chunks(chunk).for_each(|chunk| sum.add(chunk).unwrap());
            sum.end_of_payload().unwrap();
        }
        match sum.finish().unwrap().total {
            SumTotal::Values(values) => values,
            SumTotal::Masked(_) => panic!("nothing was masked"),
        }
    }

    proptest! {
        /// The bits of a sum do not depend on how its payloads were cut.
        #[test]
        fn sums_and_checks_do_not_depend_on_chunks(
            payloads in prop::collection::vec(prop::collection::vec(-1e9_f64..1e9, 5), 1..6),
            chunk in 1_usize..50,
        ) {
            let bytes: Vec<Vec<u8>> = payloads.iter().map(|p| p.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
            let expected_sum: Vec<u64> =
                (0..5).map(|j| payloads.iter().fold(0.0_f64, |sum, payload| sum + payload[j]).to_bits()).collect();
            let got: Vec<u64> = sum(PayloadKind::Values, &bytes, chunk).iter().map(|x| x.to_bits()).collect();
            prop_assert_eq!(got, expected_sum);
            for payload in &bytes {
                let mut check = PayloadCheck::new(expected(PayloadKind::Values, payload));
                payload.chunks(chunk).for_each(|chunk| check.update(chunk).unwrap());
                check.finish().unwrap();
            }
        }

        /// Lattice sums are exact, whatever the order.
        #[test]
        fn lattice_sums_are_exact(mut values in prop::collection::vec(any::<i64>(), 1..40), exponent in -40_i32..40) {
            let kind = PayloadKind::Lattice { exponent };
            let payloads = |values: &[i64]| values.iter().map(|v| v.to_le_bytes().to_vec()).collect::<Vec<_>>();
            let exact: i128 = values.iter().map(|v| i128::from(*v)).sum();
            let forward = sum(kind, &payloads(&values), 3);
            values.reverse();
            let backward = sum(kind, &payloads(&values), 8);
            prop_assert_eq!(forward[0].to_bits(), backward[0].to_bits());
            prop_assert_eq!(forward[0].to_bits(), (exact as f64 * 2f64.powi(exponent)).to_bits());
        }
    }

    #[test]
    fn a_thousand_extreme_lattice_payloads_do_not_wrap() {
        let payload = i64::MAX.to_le_bytes().to_vec();
        let total = sum(PayloadKind::Lattice { exponent: 0 }, &vec![payload; 1000], 8)[0];
        assert!((total / (1000.0 * 2f64.powi(63)) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn a_payload_of_another_length_is_no_part_of_a_sum() {
        let mut short = Accumulator::new(close(PayloadKind::Values, 2, 1));
        short.add(&[0; 12]).unwrap();
        assert_eq!(short.end_of_payload(), Err(PayloadError::Mismatch));
        let mut long = Accumulator::new(close(PayloadKind::Values, 2, 1));
        assert_eq!(long.add(&[0; 24]), Err(PayloadError::Mismatch));
        let missing = Accumulator::new(close(PayloadKind::Values, 2, 1));
        assert_eq!(missing.finish(), Err(PayloadError::Mismatch));
    }

    #[test]
    fn a_value_that_straddles_two_chunks_is_looked_at() {
        let bytes: Vec<u8> = [1.0, f64::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut check = PayloadCheck::new(expected(PayloadKind::Values, &bytes));
        check.update(&bytes[..11]).unwrap();
        assert_eq!(check.update(&bytes[11..]), Err(PayloadError::NotFinite));
    }
}
