//! Names of sites, runs and releases, their hashes, and what a release carries. Every crate that names one of them depends on this one.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Digest of `domain`, its length, and the parts in turn, each preceded by its length: no two inputs collide by concatenation.
    #[must_use]
    pub fn of(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update((domain.len() as u64).to_le_bytes());
        hasher.update(domain.as_bytes());
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
        let digits: [[u8; 2]; 32] = self.0.map(|byte| [digit(byte >> 4), digit(byte)]);
        f.write_str(std::str::from_utf8(digits.as_flattened()).map_err(|_| std::fmt::Error)?)
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::str::FromStr for Hash {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let text = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(InvalidName);
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| InvalidName)?;
        }
        Ok(Self(bytes))
    }
}

/// A name that breaks the rules of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("names use 1 to 64 of the characters a-z 0-9 - _ . (hashes: 64 hexadecimal digits)")]
pub struct InvalidName;

/// Name of a site, as in its certificate. Copies share its text: it goes into every record and message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// Checks the name.
    ///
    /// # Errors
    /// Empty, longer than 64 bytes, or with other characters than `a-z 0-9 - _ .`.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
        let name = name.as_ref();
        let ok = (1..=64).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b));
        if ok { Ok(Self(Arc::from(name))) } else { Err(InvalidName) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ClientId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl de::Visitor<'_> for Name {
            type Value = ClientId;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a client's name")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<ClientId, E> {
                ClientId::new(name).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Name)
    }
}

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run = (task hash, run number).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// SHA-256 of the resolved task.
    pub task: Hash,
    /// Number of the run of that task.
    pub number: u32,
}

/// One release: one per (run, client, round), for ever.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReleaseId {
    /// The run.
    pub run: RunId,
    /// The site.
    pub client: ClientId,
    /// The round (one server commit each), from 0.
    pub round: u32,
}

impl std::fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.run.task, self.run.number, self.client, self.round)
    }
}

/// A vector on the lattice 2^`exponent`·ℤᵈ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatticeVector {
    /// The lattice constant is 2^exponent.
    pub exponent: i32,
    /// Integer coordinates.
    pub values: Vec<i64>,
}

impl LatticeVector {
    /// The real vector; rounding to `f64` is post-processing.
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        let step = 2f64.powi(self.exponent);
        #[allow(clippy::cast_precision_loss, reason = "post-processing")]
        self.values.iter().map(|&v| v as f64 * step).collect()
    }
}

/// What travels: a lattice vector, or numbers computed from released values only (or released without protection).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Payload {
    /// A noised sum on its lattice.
    Lattice(LatticeVector),
    /// Post-processed or non-private numbers.
    Values(Vec<f64>),
    /// A vector under a mask: uniform words, which mean something only in a sum without their masks.
    Masked(LatticeVector),
}

impl Payload {
    /// Number of coordinates.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Lattice(v) | Self::Masked(v) => v.values.len(),
            Self::Values(v) => v.len(),
        }
    }

    /// Whether there is no coordinate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kind of this payload, which travels beside the coordinates.
    #[must_use]
    pub fn kind(&self) -> PayloadKind {
        match self {
            Self::Lattice(v) => PayloadKind::Lattice { exponent: v.exponent },
            Self::Values(_) => PayloadKind::Values,
            Self::Masked(v) => PayloadKind::Masked { exponent: v.exponent },
        }
    }

    /// Coordinates as little-endian 8-byte words: the bytes that are stored, hashed and sent, once and for all.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Lattice(v) | Self::Masked(v) => v.values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::Values(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// Reads what [`Payload::to_bytes`] wrote; `None` unless `bytes` is a multiple of 8.
    #[must_use]
    pub fn from_bytes(kind: PayloadKind, bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let vector = |exponent| LatticeVector { exponent, values: words.iter().map(|w| i64::from_le_bytes(*w)).collect() };
        Some(match kind {
            PayloadKind::Lattice { exponent } => Self::Lattice(vector(exponent)),
            PayloadKind::Masked { exponent } => Self::Masked(vector(exponent)),
            PayloadKind::Values => Self::Values(words.iter().map(|w| f64::from_le_bytes(*w)).collect()),
        })
    }
}

/// Kind of a payload without its coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PayloadKind {
    /// `i64` words on the lattice 2^exponent.
    Lattice {
        /// Lattice exponent.
        exponent: i32,
    },
    /// `f64` words.
    Values,
    /// `i64` words on the lattice 2^exponent, under a mask.
    Masked {
        /// Lattice exponent.
        exponent: i32,
    },
}

/// Parameters that do not fit the lattice.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("clipping norm, noise multiplier and number of units do not fit a 64-bit lattice: {0}")]
pub struct LatticeOverflow(pub &'static str);
