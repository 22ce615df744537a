#![cfg_attr(test, allow(clippy::unwrap_used))]
//! Secure aggregation by a two-server seed split: the server learns the sum of the sites' vectors and no single one, and each
//! site adds only its share of the noise.
//!
//! This crate is the pure core: no socket, no file, no clock, no generator of its own. Wire, stores and processes are elsewhere.
//!
//! # The exchange
//!
//! All vectors are in ℤ mod 2⁶⁴ ([`ring`]). The *server* runs the federation; the *summer* is a second party that does not collude
//! with it.
//!
//! 0. All parties sign a [`charter`]: keys, thresholds, clip, noise, lattice, rounds. The [`plan`]ner made its numbers fit.
//! 1. The summer offers a fresh X25519 key; the server puts it in the round's [`header`]; both sign it.
//! 2. A [`client`] checks the header against charter, transcript and the model that arrived, reserves its charge, trains, and gets from
//!    the gate of `dp-pvi-privacy` a `NoiseShare`, which can be masked and nothing else. It draws a 32-byte seed, adds ChaCha20 of
//!    it ([`mask`]), commits to the result ([`commitment`]), [`seal`]s the seed for the summer, signs, and erases share and seed.
//! 3. At close the server fixes the set U and sends the summer the [`upload`]s without their vectors. The [`summer`] checks the
//!    [`closing`] rules, writes CLOSED(round, H(U)), adds the masks up, signs the sum of masks, and destroys the round's key.
//! 4. The [`server`] subtracts, and publishes U, commitments and signatures as the round's [`transcript`] entry. Each client looks for its own
//!    commitment there, and names the entry's hash in its next upload.
//!
//! One upload a client and one exchange between server and summer a round. A site that drops out costs nothing: its mask is never
//! added. Below the minimum the round is aborted; what was charged stays charged.
//!
//! # What each party sees
//!
//! | party | sees | does not see |
//! |---|---|---|
//! | server | who takes part and when; each masked vector (uniform words); sealed seeds; the sum of the masks of U; the sum of the vectors of U | a single site's vector, seed or mask |
//! | summer | who takes part; commitments; the seeds of U, so each mask | any vector, masked or not; the model; the sum |
//! | a site | the model, the transcript: names and commitments of U | other sites' vectors, masks or sums of fewer than U |
//! | the network | sizes and times (TLS hides the rest) | |
//!
//! # What collusion reveals
//!
//! | who works together | what they learn | loss that is stated |
//! |---|---|---|
//! | server alone; summer alone | the sums; nothing | joint ε |
//! | up to c sites with server *or* summer | the sum of the others: at least h honest shares of noise are in it | joint ε |
//! | more than c sites with the server | a sum with fewer than h honest shares | between joint ε and fallback ε |
//! | server *and* summer | each site's vector with its own share of the noise | fallback ε |
//! | everybody else against one site | that site's vector with its own share | fallback ε |
//!
//! Joint and fallback ε come from [`account::AggregatedLoss`]; the fallback's μ is √h times the joint one's: at joint ε = 1 it is 1.47 (h = 2),
//! 2.95 (7), 5.4 (20), 17.9 (140). That is the price of the smaller noise; a site's policy may cap it (`[budget] max_fallback_epsilon`, compared by
//! the ledger before every release), and [`charter::Floors`] caps h. With two sites each could subtract its own vector, so the planner says that
//! aggregation buys nothing.
//!
//! Integrity is another matter: server or summer can add an offset to the sum, and a site can send any vector of the ring. Only the sum can be
//! checked ([`server::Summing::finish`] refuses one that honest sites cannot have sent).
//!
//! # Which attack each check stops
//!
//! | check | attack |
//! |---|---|
//! | charter signed by *every* party, keys included; soundness of keys; strict signatures | keys that the server exchanged, parties that were not asked or were impersonated |
//! | the summer's key pinned at every site, from the summer's own house (`[aggregation] summer`) | a server that plays the summer as well |
//! | names and keys of all sites shown before the charter is signed; held until an operator has compared them (`approve = "manual"`) | sites that exist on the server's disk only |
//! | header fields = charter; charter ≥ the site's floors | thresholds lowered by the server |
//! | header signed by server and summer, one a round | two headers for two groups of sites |
//! | header names the model's hash; header's hash is in mask, commitment, seed's associated data | different models to different sites, so that one site's part stands out |
//! | `previous` = hash of the last entry; the client's echo | forked or replayed histories; the same round twice |
//! | commitment in the seed's associated data and in the signed upload | a vector exchanged after its mask was fixed; one site's seed used under another name to cancel a mask |
//! | U: ascending, each once, in the charter, ≥ U_min = h + c | sums of too few; a site counted twice; lists of survivors and dropouts that overlap (there is one list only) |
//! | CLOSED(round, H(U)) durable before masks are added; retry = same bytes | U, then U without one site: the difference is that site's mask |
//! | round key in a vault outside the store, destroyed before the answer leaves | the same after the summer's database is restored from a copy |
//! | all seeds opened before CLOSED | a site with a bad seed that spoils the round for all |
//! | own commitment in the entry; the summer's statement over (header, H(U)) | a site dropped or replaced in secret |
//! | the planner's M·N·C_int + 64M(s+1) < 2⁶³ | sums that wrap |
//! | s ≥ 2¹⁰; noise sized for h, not for M | sums of discrete Gaussians that are none; noise that is too small when sites are missing |
//! | `NoiseShare` has no door but `mask`; it is consumed and erased | a share kept in a site's factor, which the next round would take out again (`dp_pvi_privacy::proofs::carried_state`) |
//! | 256-bit seeds through HKDF, keystream words as they come | masks with 32 bits of entropy; masks that miss a value; masks shared by rounds or sites |
//!
//! Not stopped: a server and a summer that collude (they are two parties for that reason, in two houses); more than c invented sites where nobody
//! compares the charter's list with the hospitals that it names (programs cannot: the row "more than c sites with the server" says what is left);
//! denial of service by either; what the sum itself tells, which is what ε bounds.
//!
//! # Cost
//!
//! *Client* is everything but training: header, clip, sum, exact noise (most of it), mask, commitment, seal, signature. *Summer* is a whole closing.
//! Both are processor time of the one thread that works (`cargo bench -p dp-pvi-secagg --bench t2_6`, means of 3 to 1000 calls on a 2-core 2.5 GHz
//! machine with much other work on it). *Server* is the check of one upload at the door, and the sum of all at close: medians by the clock of
//! `--bench cost` on the same machine at a load average of 6. Uploads are 8d bytes and less than 400 more (tested).
//!
//! | d | M | upload | client | summer | server: an upload / the sum | SecAgg+ (k): client up / CPU | SecAgg+ server, 10 % dropouts |
//! |---|---|---|---|---|---|---|---|
//! | 105 | 10 | 1.1 kB | 0.50 ms | 2.6 ms | 0.04 ms / 0.3 µs | (9) 4.6 kB / 3.1 ms | 2 ms |
//! | 105 | 1000 | 1.1 kB | 0.50 ms | 173 ms | 0.04 ms / 18 µs | (102) 43.6 kB / 35 ms | 1.4 s |
//! | 10,000 | 100 | 80.3 kB | 2.1 ms | 25 ms | 0.09 ms / 0.2 ms | (42) 97.6 kB / 20 ms | 95 ms |
//! | 1,000,000 | 100 | 8.00 MB | 154 ms | 558 ms | 9 ms / 57 ms | (42) 8.02 MB / 560 ms | 3.4 s |
//!
//! The SecAgg+ columns are the design's estimates from measured primitives with k neighbours (d = 100 in the first two rows,
//! 10 % dropouts, without training), not runs of this crate. Acceptance (T2.6) asks at d = 10⁶, M = 100 for a client within 1 s, a summer within
//! 2 s and 8.01 MB; at d = 105, M = 1000 for a closing within 1 s.

pub mod account;
pub mod charter;
pub mod client;
pub mod closing;
pub mod commitment;
pub mod error;
pub mod header;
pub mod mask;
pub mod plan;
pub mod ring;
pub mod seal;
pub mod server;
pub mod signed;
pub mod summer;
pub mod transcript;
pub mod upload;
