//! A server's witness of a ledger head, with the word of the site itself.
//!
//! A server remembers the highest head that each site's ledger had, so that an old copy of a ledger is noticed. A server that lies could name a
//! head that no ledger ever had and lock its site out. So it gives the site's own signed message with its welcome: the hello or update in
//! which that head stands. A site believes what it signed itself, and nothing else, about its ledger.
//!
//! An update signs the head that its ledger had before the row that keeps the update. So a site that is given an update must hold it, too.
//!
//! What is not compared: which of several ledgers of one site the head belonged to, beyond the unit and relation that a hello names. A site with
//! two data sets needs two names.

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_names::ClientId;
use dp_pvi_privacy::ledger::LedgerHead;
use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};

use crate::message::{Hello, Signed, Update, Welcome};

/// A ledger head in the message in which its site signed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SignedHead {
    /// A hello.
    Hello(Signed<Hello>),
    /// An update.
    Update(Signed<Update>),
}

/// A head that a server saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Witnessed {
    /// The head.
    pub head: LedgerHead,
    /// The site's own message about it; none where the server holds none.
    pub signed: Option<SignedHead>,
}

/// A welcome with what is beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Greeting {
    /// The server's signed answer.
    pub welcome: Signed<Welcome>,
    /// The site's own message about the head that the welcome names.
    pub signed: Option<SignedHead>,
}

impl SignedHead {
    /// The head, if this site's key signed the message for a ledger of this unit and relation.
    #[must_use]
    pub fn open(&self, client: &ClientId, key: &VerifyingKey, ledger: (PrivacyUnit, Relation)) -> Option<LedgerHead> {
        match self {
            Self::Hello(hello) => {
                let hello = hello.open(key).ok()?;
                if hello.client == *client && hello.ledger == Some(ledger) { hello.ledger_head } else { None }
            }
            Self::Update(update) => {
                let update = update.open(key).ok()?;
                (update.release.client == *client).then_some(update.ledger_head)
            }
        }
    }

    /// Whether it is an update. Of two messages about one head an update says more: that the ledger has a row after this head, with this update.
    #[must_use]
    pub fn is_update(&self) -> bool {
        matches!(self, Self::Update(_))
    }

    /// As it is stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::codec::encode(self)
    }

    /// Reads [`SignedHead::to_bytes`]; nothing is verified.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        crate::codec::decode(bytes)
    }

    /// The head that a message of our own store names.
    #[must_use]
    pub fn peek(&self) -> Option<LedgerHead> {
        match self {
            Self::Hello(hello) => hello.peek().ok()?.ledger_head,
            Self::Update(update) => Some(update.peek().ok()?.ledger_head),
        }
    }
}
