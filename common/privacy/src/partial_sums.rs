//! Sums that several processes of one site make together, for a data set that one machine does not hold.
//!
//! The site's *head* keeps the ledger, the noise and the permit. Its *executors* hold the records. In a visit the head asks one question; an executor sums the clipped terms
//! of the units that it was given ([`Part`]), and answers with integers that only the head can open. The head adds them up, and goes on as if it had summed
//! all units itself: a term is a function of its unit, and integers are added, so the bits are the same for any number of parts.
//!
//! Whatever carries questions and answers (a scheduler, a network, files on the way) sees ciphertexts.
//!
//! # Privacy
//! A sum without noise leaves this crate in two ways: as noised by a mechanism at the head, and as an answer that is sealed to the head. This is the second one.
//!
//! * **A question** is encrypted and authenticated under the key that head and executors share ([`SiteKey`], ChaCha20-Poly1305). So no one else can make an executor
//!   sum anything, or seal to a key of his own. It holds what is public (task, λ), and a public key that the head draws for this one question.
//! * **An answer** is sealed to that key (HPKE, RFC 9180, mode PSK with a key of the site), and bound to the question's digest. The secret half never leaves the head's
//!   memory, and is erased when the sum is there: an answer that someone kept can be opened by no one, executors and the head of the next visit included. Integers have a fixed length, so a
//!   ciphertext's length tells no value.
//! * **The newest question only.** The head numbers the questions about a snapshot. An executor can tell an old one that someone kept from the newest one, and what it does for one question
//!   is bounded by anyone who computes there: a time that it takes is an answer that no one sealed.
//! * **Every unit once.** An answer says which units it summed. The head takes the answers only if they hold each unit of the snapshot exactly once: a part that was computed twice after a crash
//!   would double terms, and so the sensitivity.
//! * **Clipping** happens where the terms are made, in the same code as for a sum in one process. The question says clipping norm and lattice, and an executor whose task gives other
//!   ones answers nothing. The head checks that no coordinate is larger than so many clipped terms can make it.
//! * **Executors are trusted** with the records that they sum, as the head is. One that lies about its integers can break the guarantee of the site's own records, as a head that lies can.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, KeyInit, Nonce};
use hpke::aead::ChaCha20Poly1305 as Cipher;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, PskBundle, Serializable};
use rand_core::Rng;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::mechanism::{LatticeSum, MAX_UNITS, ReleaseError, SumMechanism, Summation, Summed};
use crate::noise::{NoRandomness, SecureNoise};
use crate::records::{Argument, Sensitive, UnitTable, Units};
use crate::shards::Grouping;
use dp_pvi_names::Hash;

/// What head and executors must agree about beside the task: the form of questions and answers, and the program.
const VERSION: &str = concat!("dp-pvi parts v2, ", env!("CARGO_PKG_VERSION"));

/// Parts into which the units of a sum are cut where a site does not say how many.
pub const USUAL_PARTS: u32 = 16;

/// Bytes of a nonce in front of a question, and of an encapsulated key in front of an answer.
const NONCE: usize = 12;
const ENCAPSULATED: usize = 32;

/// A secret that the processes of one site share. Erased when dropped.
pub struct SiteKey(Zeroizing<[u8; 32]>);

impl SiteKey {
    /// 32 secret bytes, drawn at random.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// A key for one purpose and one thing.
    #[must_use]
    pub fn derived(&self, purpose: &str, of: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(Hash::of("dp-pvi key of a site's processes v1", &[&*self.0, purpose.as_bytes(), of]).0)
    }
}

/// The way to the executors.
pub trait ExecutorChannel: Send + Sync {
    /// Carries a question to them, and brings their answers in any order. Neither can be read on the way.
    ///
    /// # Errors
    /// There is no answer. Why is for the site's own people, and is told to them another way.
    fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum>;
}

/// Other processes did not give a sum: nothing was released. It says why in words that no record is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSum {
    /// The update needs more than a sum over all units.
    #[error("the site's engine sums the terms of all records, and this update needs something else of them: run it without [data.engine]")]
    Unfit,
    /// They could not be asked, or did not answer.
    #[error(
        "the site's engine did not answer; nothing was released. Its own output says why; look at scheduler and executors, and start this program again"
    )]
    Unanswered,
    /// An answer is none to the question, or not one of this site's executors.
    #[error(
        "the site's engine gave an answer that is not of this site's executors; nothing was released. Check that all of them have the key and the version of the head"
    )]
    Foreign,
    /// Units are missing, or were summed twice.
    #[error(
        "the answers of the site's engine do not hold every unit once; nothing was released. Check that its folder was not changed, and start this program again"
    )]
    Incomplete,
}

/// Units that are with executors, as the head knows them.
pub struct Elsewhere {
    count: usize,
    snapshot: Hash,
    key: SiteKey,
    ask: Box<dyn ExecutorChannel>,
    /// Questions so far.
    asked: AtomicU64,
}

impl Elsewhere {
    /// So many units, in the snapshot of this name.
    ///
    /// # Panics
    /// More than [`MAX_UNITS`] units, which no loader of this workspace can count.
    #[must_use]
    pub fn new(count: usize, snapshot: Hash, key: SiteKey, ask: Box<dyn ExecutorChannel>) -> Self {
        assert!(count as u64 <= MAX_UNITS, "a table holds at most 2^32 units");
        Self { count, snapshot, key, ask, asked: AtomicU64::new(0) }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The exact integer sum over all units.
    pub(crate) fn sum(&self, mechanism: &LatticeSum, argument: &[u8]) -> Result<Vec<i64>, NoSum> {
        let mut random = SecureNoise::fresh().map_err(|NoRandomness| NoSum::Unanswered)?;
        let (secret, public) = X25519HkdfSha256::gen_keypair_with_rng(&mut random);
        let mut head = [0; 32];
        public.write_exact(&mut head);
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let (version, form, argument) = (VERSION.to_owned(), mechanism.form(), argument.to_vec());
        let question = QuestionBody { version, snapshot: self.snapshot.0, number, head, form, argument };
        let mut nonce = [0; NONCE];
        random.fill_bytes(&mut nonce);
        let question = question.seal(&self.key, nonce).ok_or(NoSum::Unfit)?;
        let digest = digest(&question);
        let mut sums = vec![0_i64; mechanism.dimension() as usize];
        let mut seen = Vec::new();
        for answer in self.ask.ask(&question)? {
            let answer = open(&answer, &secret, &self.key, &digest)?;
            take_in(&answer, mechanism, &mut sums, &mut seen).ok_or(NoSum::Foreign)?;
        }
        seen.sort_unstable_by_key(|units: &Range<u64>| units.start);
        let mut end = 0;
        for units in seen {
            if units.start != end {
                return Err(NoSum::Incomplete);
            }
            end = units.end;
        }
        if end == self.count as u64 { Ok(sums) } else { Err(NoSum::Incomplete) }
    }
}

/// What is in a question.
#[derive(Serialize, Deserialize)]
struct QuestionBody {
    version: String,
    snapshot: [u8; 32],
    number: u64,
    /// The head's public key for the answers.
    head: [u8; 32],
    form: [u64; 5],
    argument: Vec<u8>,
}

impl QuestionBody {
    fn seal(&self, key: &SiteKey, nonce: [u8; NONCE]) -> Option<Vec<u8>> {
        let text = postcard::to_stdvec(self).ok()?;
        let sealed = cipher(key).encrypt(&Nonce::from(nonce), Payload { msg: &text, aad: VERSION.as_bytes() }).ok()?;
        Some([&nonce[..], &sealed].concat())
    }
}

fn cipher(key: &SiteKey) -> ChaCha20Poly1305 {
    ChaCha20Poly1305::new(&Key::from(*key.derived("question", &[])))
}

fn digest(question: &[u8]) -> Hash {
    Hash::of("dp-pvi question to executors v1", &[question])
}

/// A question that is none for this executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// It was made with another key, by another version, or changed on the way.
    #[error("this is no question of the site's head: check that head and executors have the same key and the same version")]
    Foreign,
    /// The task gives another sum than the one that is asked for: a bug of ours.
    #[error("the question is about another sum than its task has: report this as a bug")]
    OtherSum,
}

/// A question of the site's head, opened by an executor.
pub struct Question {
    asked: QuestionBody,
    digest: Hash,
    /// The key by which an answer is known to be of this site.
    own: Zeroizing<[u8; 32]>,
}

impl Question {
    /// Opens a question.
    ///
    /// # Errors
    /// It was not made with this key, or by another version.
    pub fn open(question: &[u8], key: &SiteKey) -> Result<Self, NotAsked> {
        let (nonce, sealed) = question.split_first_chunk::<NONCE>().ok_or(NotAsked::Foreign)?;
        let text = cipher(key).decrypt(&Nonce::from(*nonce), Payload { msg: sealed, aad: VERSION.as_bytes() });
        let asked: QuestionBody = text.ok().and_then(|text| postcard::from_bytes(&text).ok()).ok_or(NotAsked::Foreign)?;
        if asked.version != VERSION {
            return Err(NotAsked::Foreign);
        }
        Ok(Self { asked, digest: digest(question), own: key.derived("answer", &[]) })
    }

    /// Name of the snapshot that is asked about.
    #[must_use]
    pub fn snapshot(&self) -> Hash {
        Hash(self.asked.snapshot)
    }

    /// Number of the question among those about its snapshot: a later one has a larger number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.asked.number
    }

    /// The public argument of the functions that make terms, and a copy of its value.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn argument<A: DeserializeOwned>(&self) -> Result<(Argument<A>, A), NotAsked> {
        let argument = Argument::received(&self.asked.argument).map_err(|_| NotAsked::Foreign)?;
        let value = argument.fresh();
        Ok((argument, value))
    }
}

/// The clipped sum of some units, as an executor makes it. Its integers can be sealed to the head that asked, and nothing else.
///
/// ```compile_fail
/// fn look(part: dp_pvi_privacy::partial_sums::Part) -> Vec<i64> { part.sums }
/// ```
/// ```compile_fail
/// fn print(part: dp_pvi_privacy::partial_sums::Part) -> String { format!("{part:?}") }
/// ```
pub struct Part {
    mechanism: LatticeSum,
    sums: Vec<i64>,
    seen: Vec<Range<u64>>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.sums.zeroize();
    }
}

impl Part {
    /// A sum of no units so far.
    ///
    /// # Errors
    /// The question is about another sum than the mechanism's.
    pub fn new(mechanism: &SumMechanism, question: &Question) -> Result<Self, NotAsked> {
        let mechanism = mechanism.terms().clone();
        if mechanism.form() != question.asked.form {
            return Err(NotAsked::OtherSum);
        }
        Ok(Self { sums: vec![0; mechanism.dimension() as usize], mechanism, seen: Vec::new() })
    }

    /// Adds the clipped terms of these units, of which the first one is unit number `first` of the snapshot.
    ///
    /// # Privacy
    /// As [`LatticeSum::release_sum`]: one term a unit, clipped, truncated onto the lattice and checked.
    ///
    /// # Errors
    /// The units are no single units; what `f` says before it looks at a record.
    pub fn add<T: UnitTable, A: DeserializeOwned, E: From<ReleaseError>>(
        &mut self,
        units: &Units<T>,
        first: u64,
        argument: &Argument<A>,
        f: fn(&A, Summation<'_, T>) -> Result<Summed, E>,
    ) -> Result<(), E> {
        if units.grouping != Grouping::Units {
            return Err(ReleaseError::NoSum(NoSum::Unfit).into());
        }
        let (sums, _) = self.mechanism.summed(units, &Sensitive::NOTHING, argument, f, None, false)?;
        let sums = Zeroizing::new(sums);
        // Below 2⁶³ for all units of a site together, which the head counts.
        self.sums.iter_mut().zip(&*sums).for_each(|(sum, part)| *sum = sum.wrapping_add(*part));
        let end = first.saturating_add(units.count() as u64);
        match self.seen.last_mut() {
            Some(last) if last.end == first => last.end = end,
            _ => self.seen.push(first..end),
        }
        Ok(())
    }

    /// The answer: only the head that asked this question can open it.
    ///
    /// # Errors
    /// The system gives no randomness, or the head's key is none.
    pub fn seal(self, question: &Question) -> Result<Vec<u8>, NoRandomness> {
        let mut text = Zeroizing::new(Vec::with_capacity(8 + 16 * self.seen.len() + 8 * self.sums.len()));
        text.extend_from_slice(&(self.seen.len() as u64).to_le_bytes());
        for units in &self.seen {
            text.extend_from_slice(&units.start.to_le_bytes());
            text.extend_from_slice(&units.end.to_le_bytes());
        }
        self.sums.iter().for_each(|sum| text.extend_from_slice(&sum.to_le_bytes()));
        let mut random = SecureNoise::fresh()?;
        let head = Deserializable::from_bytes(&question.asked.head).map_err(|_| NoRandomness)?;
        let mode = OpModeS::Psk(psk(&question.own).ok_or(NoRandomness)?);
        let info = &question.digest.0;
        let (encapsulated, sealed) =
            hpke::single_shot_seal_with_rng::<Cipher, HkdfSha256, X25519HkdfSha256>(&mode, &head, info, &text, &[], &mut random)
                .map_err(|_| NoRandomness)?;
        let mut bytes = [0; ENCAPSULATED];
        encapsulated.write_exact(&mut bytes);
        Ok([&bytes[..], &sealed].concat())
    }
}

fn psk(own: &[u8; 32]) -> Option<PskBundle<'_>> {
    PskBundle::new(own, VERSION.as_bytes()).ok()
}

type Secret = <X25519HkdfSha256 as Kem>::PrivateKey;

fn open(answer: &[u8], secret: &Secret, key: &SiteKey, digest: &Hash) -> Result<Zeroizing<Vec<u8>>, NoSum> {
    let own = key.derived("answer", &[]);
    let (encapsulated, sealed) = answer.split_first_chunk::<ENCAPSULATED>().ok_or(NoSum::Foreign)?;
    let encapsulated = Deserializable::from_bytes(encapsulated).map_err(|_| NoSum::Foreign)?;
    let mode = OpModeR::Psk(psk(&own).ok_or(NoSum::Foreign)?);
    hpke::single_shot_open::<Cipher, HkdfSha256, X25519HkdfSha256>(&mode, secret, &encapsulated, &digest.0, sealed, &[])
        .map(Zeroizing::new)
        .map_err(|_| NoSum::Foreign)
}

/// Adds the integers of an answer, and notes its units. `None` where it has another form.
fn take_in(mut answer: &[u8], mechanism: &LatticeSum, sums: &mut [i64], seen: &mut Vec<Range<u64>>) -> Option<()> {
    let mut word = || {
        let (word, rest) = answer.split_first_chunk::<8>()?;
        answer = rest;
        Some(u64::from_le_bytes(*word))
    };
    let mut units = 0_u64;
    for _ in 0..word()? {
        let range = word()?..word()?;
        units = units.checked_add(range.end.checked_sub(range.start)?)?;
        seen.push(range);
    }
    // So many terms: below 2⁶³ for any number of units that a head knows, see `LatticeSum::new`.
    let largest = u128::from(units.min(MAX_UNITS)) * mechanism.bound_squared().isqrt();
    for sum in sums {
        let part = word()?.cast_signed();
        if u128::from(part.unsigned_abs()) > largest {
            return None;
        }
        *sum = sum.wrapping_add(part);
    }
    answer.is_empty().then_some(())
}
