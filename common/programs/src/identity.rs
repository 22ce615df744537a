//! Identities: names in certificates, identity keys, and the request file for enrolment.
//!
//! A site has two keys. The *TLS key* is certified by the federation's authority; its certificate names the site in a URI,
//! `dp-pvi://FEDERATION/site/ID` (or `evaluator`, or `summer`). The *identity key* (Ed25519) signs everything that the site says; it is pinned when the site is
//! enrolled, and the first message of every connection binds the TLS key to it.

mod enrolment;
mod keys;
mod name;

pub use enrolment::Enrolment;
pub use keys::{
    Together, check_own, generate_identity, identity_from_pem, identity_to_pem, move_all, public_identity_from_pem, public_identity_to_pem,
    read_secret, without_mark, write_new, write_secret,
};
pub use name::{Party, PeerName, PeerRole, check_federation, spki_hash};

/// Why a name, key or enrolment file is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Not a name of the form `dp-pvi://FEDERATION/(server | site/ID | evaluator/ID | summer/ID)`.
    #[error("{0:?} is not a name in a federation: dp-pvi://FEDERATION/server, dp-pvi://FEDERATION/site/ID, …/evaluator/ID or …/summer/ID")]
    Name(String),
    /// A federation's name breaks the rules.
    #[error("a federation's name uses 1 to 64 of the characters a-z 0-9 - _ .")]
    Federation,
    /// Not an X.509 certificate.
    #[error("this is not a certificate: {0}")]
    Certificate(String),
    /// No name, or more than one.
    #[error("the certificate must carry exactly one name of the form dp-pvi://FEDERATION/…; it was not made by `dp-pvi-server ca sign`")]
    NoName,
    /// Not a key file of the expected kind.
    #[error("this is not an Ed25519 {0} in PEM form")]
    Key(&'static str),
    /// Not an enrolment file.
    #[error("this is not an enrolment file ({0}): make one with `dp-pvi-client csr` (a summer: `dp-pvi-server summer csr`)")]
    Enrolment(&'static str),
    /// The identity key did not sign this request.
    #[error("the enrolment file was changed after it was made: its signature does not fit; make it again")]
    Signature,
    /// Files.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file of ours that someone else can read or change.
    #[error("{path}: {problem}")]
    Unsafe {
        /// Which file.
        path: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The operating system gave no randomness.
    #[error("the operating system gave no random bytes")]
    Randomness,
}
