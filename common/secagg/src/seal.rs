//! Seeds sealed to the summer's key of one round: HPKE (RFC 9180) base mode, DHKEM(X25519, HKDF-SHA256), ChaCha20-Poly1305.

use dp_pvi_names::{ClientId, Hash};
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable};
use rand_core::CryptoRng;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::commitment::Commitment;
use crate::error::SecAggError;
use crate::mask::MaskSeed;

const INFO: &[u8] = b"dp-pvi secagg seed v1";

type Secret = <X25519HkdfSha256 as Kem>::PrivateKey;

/// The summer's public key of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundPublicKey(pub [u8; 32]);

/// The summer's secret key of one round. Erased when dropped; no `Debug`, `Clone` or serialisation: it leaves through
/// `RoundSecretKey::expose` into the vault only, and is destroyed there after closing.
pub struct RoundSecretKey(Secret);

impl RoundSecretKey {
    /// A fresh key: one for each round.
    #[must_use]
    pub fn fresh(rng: &mut impl CryptoRng) -> Self {
        Self(X25519HkdfSha256::gen_keypair_with_rng(rng).0)
    }

    /// A key from the vault; `None` if the bytes are not one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        Secret::from_bytes(bytes).ok().map(Self)
    }

    /// The bytes, for the vault.
    #[must_use]
    pub(crate) fn expose(&self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.0.write_exact(bytes.as_mut());
        bytes
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> RoundPublicKey {
        let mut bytes = [0; 32];
        X25519HkdfSha256::sk_to_pk(&self.0).write_exact(&mut bytes);
        RoundPublicKey(bytes)
    }

    /// Opens a seed; fails unless it was sealed for this very header, client and commitment.
    ///
    /// # Errors
    /// It was not, or not to this key.
    pub fn open(&self, sealed: &SealedSeed, header: &Hash, client: &ClientId, commitment: &Commitment) -> Result<MaskSeed, SecAggError> {
        let refused = || SecAggError::SealedSeed { client: client.clone() };
        let encapsulated = Deserializable::from_bytes(&sealed.encapsulated).map_err(|_| refused())?;
        let aad = associated(header, client, commitment);
        let seed = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.0,
            &encapsulated,
            INFO,
            &sealed.ciphertext,
            &aad,
        );
        let seed = Zeroizing::new(seed.map_err(|_| refused())?);
        MaskSeed::from_slice(&seed).ok_or_else(refused)
    }
}

/// A seed that only the summer's key of the round opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSeed {
    encapsulated: [u8; 32],
    ciphertext: Vec<u8>,
}

impl SealedSeed {
    /// Seals a seed for one header, client and commitment, which become associated data.
    ///
    /// # Errors
    /// The public key is not a point that can be agreed with (small order): the summer is faulty or malicious.
    pub fn new(
        seed: &MaskSeed,
        key: &RoundPublicKey,
        header: &Hash,
        client: &ClientId,
        commitment: &Commitment,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, SecAggError> {
        let refused = || SecAggError::Header { field: "round key" };
        let key = Deserializable::from_bytes(&key.0).map_err(|_| refused())?;
        let (encapsulated, ciphertext) = hpke::single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &key,
            INFO,
            seed.bytes(),
            &associated(header, client, commitment),
            rng,
        )
        .map_err(|_| refused())?;
        let mut bytes = [0; 32];
        encapsulated.write_exact(&mut bytes);
        Ok(Self { encapsulated: bytes, ciphertext })
    }
}

/// header ‖ length of the name ‖ name ‖ commitment.
fn associated(header: &Hash, client: &ClientId, commitment: &Commitment) -> Vec<u8> {
    let name = client.as_str().as_bytes();
    [&header.0[..], &(name.len() as u64).to_le_bytes(), name, &commitment.0.0].concat()
}
