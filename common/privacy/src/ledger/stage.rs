//! How far a release has come.

/// How often a permit is minted again for a release that crashes left RESERVED.
pub const MOST_RETRIES: u32 = 8;

/// State of one release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseState {
    /// Charged; nothing left the process.
    Reserved,
    /// Payload stored.
    Committed,
    /// Sent at least once.
    Sent,
    /// Receipt stored.
    Receipted,
    /// Told whether it was included.
    Settled {
        /// Whether it was.
        included: bool,
    },
}

impl std::fmt::Display for ReleaseState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reserved => "reserved",
            Self::Committed => "committed",
            Self::Sent => "sent",
            Self::Receipted => "receipted",
            Self::Settled { included: true } => "settled (included)",
            Self::Settled { included: false } => "settled (not included)",
        })
    }
}
