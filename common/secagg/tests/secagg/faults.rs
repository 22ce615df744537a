//! What must be refused, and the faults of other systems' protocols.

use crate::harness::*;
use dp_pvi_accounting::{SamplingRate, Terms};
use dp_pvi_names::{Hash, LatticeVector};
use dp_pvi_privacy::mechanism::SumBound;
use dp_pvi_secagg::bounds;
use dp_pvi_secagg::charter::{CharterBody, Floors, Member, SignedCharter, SumRounds};
use dp_pvi_secagg::client::{Client, Outgoing, Sent, Settled};
use dp_pvi_secagg::closing::{CloseRequest, ContributorSet};
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::header::{ProposedHeader, RoundHeader, SignedHeader};
use dp_pvi_secagg::plan::PlanError;
use dp_pvi_secagg::ring::{self, RingSum};
use dp_pvi_secagg::seal::{RoundSecretKey, SealedSeed};
use dp_pvi_secagg::server::{Acceptance, Closing, skip};
use dp_pvi_secagg::signed::{PublicKey, Signed};
use dp_pvi_secagg::summer::memory::{MemoryStore, MemoryVault};
use dp_pvi_secagg::summer::{RoundRecord, SummerStore};
use dp_pvi_secagg::transcript::{Head, Outcome, TranscriptEntry};
use dp_pvi_secagg::upload::Upload;

const MEMBERS: u32 = 6;

/// M = 6, f = 2: h = 3, U_min = 4.
fn small() -> Harness {
    let harness = Harness::new(&request(MEMBERS, 2, 5), 3);
    assert_eq!(harness.charter.body().min_contributors, 4);
    harness
}

/// A round up to its closing, over these sites.
fn closing(harness: &mut Harness, sites: &[u32]) -> (SignedHeader, Closing, Vec<(Sent, Outgoing)>) {
    let header = harness.header();
    let mut collecting = harness.collecting(&header);
    let parts: Vec<_> = sites.iter().map(|site| harness.part(*site, &header)).collect();
    for (_, outgoing) in &parts {
        collecting.accept(&outgoing.upload, &outgoing.salt, &words(outgoing)).unwrap();
    }
    (header, collecting.close().unwrap(), parts)
}

fn spool(parts: &[(Sent, Outgoing)], sites: &[u32]) -> Vec<(dp_pvi_names::ClientId, Vec<u8>)> {
    sites.iter().zip(parts).map(|(site, (_, outgoing))| (name(*site), words(outgoing))).collect()
}

fn without(request: &CloseRequest, position: usize) -> CloseRequest {
    let mut request = request.clone();
    request.uploads.remove(position);
    request
}

/// U, then U \ {i}: the difference of two answers would be one site's mask.
#[test]
fn a_second_set_is_refused_also_after_restart_and_restore() {
    let mut harness = small();
    let (_, closing, _) = closing(&mut harness, &[0, 1, 2, 3, 4]);
    let request = closing.request();
    let smaller = without(&request, 2);
    // The database of the time before closing, as a copy.
    let (store, vault) =
        std::mem::replace(&mut harness.summer, summer(harness.charter.clone(), MemoryStore::default(), MemoryVault::default()))
            .into_parts();
    let backup = store.clone();
    let mut live = summer(harness.charter.clone(), store, vault);
    let answer = live.close(&request).unwrap();
    assert_eq!(live.close(&request).unwrap(), answer, "a retry gets the same bytes");
    assert_eq!(live.close(&smaller), Err(SecAggError::SecondClosing { round: 0 }));
    // Restart.
    let (store, vault) = live.into_parts();
    assert!(matches!(store.round(0).unwrap(), Some(RoundRecord::Answered(_))));
    let mut restarted = summer(harness.charter.clone(), store, vault);
    assert_eq!(restarted.close(&smaller), Err(SecAggError::SecondClosing { round: 0 }));
    assert_eq!(restarted.close(&request).unwrap(), answer);
    // The copy comes back: its round is open, but its key is gone; not even a new key can be had for the round.
    let (_, vault) = restarted.into_parts();
    let mut restored = summer(harness.charter.clone(), backup, vault);
    assert_eq!(restored.close(&smaller), Err(SecAggError::KeyDestroyed { round: 0 }));
    assert_eq!(restored.close(&request), Err(SecAggError::KeyDestroyed { round: 0 }));
    let (_, vault) = restored.into_parts();
    let mut emptied = summer(harness.charter.clone(), MemoryStore::default(), vault);
    assert_eq!(emptied.offer(&mut harness.rng).unwrap_err(), SecAggError::KeyDestroyed { round: 0 });
    // A vault that is lost too: another key opens nothing that was sealed for the first.
    let mut fresh = summer(harness.charter.clone(), MemoryStore::default(), MemoryVault::default());
    let offer = fresh.offer(&mut harness.rng).unwrap();
    let key = offer.open(&harness.charter.body().summer).unwrap().key;
    let header = RoundHeader::new(&harness.charter, 0, harness.head.previous, model(0), key, 0).unwrap();
    fresh.countersign(&ProposedHeader::new(&header, &offer, &harness.charter, &harness.server).unwrap()).unwrap();
    assert!(fresh.close(&smaller).is_err());
}

/// A crash between CLOSED and the answer: the same set gives the same bytes, another one nothing.
#[test]
fn a_crash_after_closed_leaves_one_set_only() {
    struct Torn(MemoryStore, u32);
    impl SummerStore for Torn {
        fn head(&self) -> Result<Option<Head>, dp_pvi_secagg::summer::StoreError> {
            self.0.head()
        }
        fn save_head(&mut self, head: Head) -> Result<(), dp_pvi_secagg::summer::StoreError> {
            self.0.save_head(head)
        }
        fn round(&self, round: u32) -> Result<Option<RoundRecord>, dp_pvi_secagg::summer::StoreError> {
            self.0.round(round)
        }
        fn save_round(&mut self, round: u32, record: &RoundRecord) -> Result<(), dp_pvi_secagg::summer::StoreError> {
            if self.1 == 0 {
                return Err(dp_pvi_secagg::summer::StoreError("disk full".into()));
            }
            self.1 -= 1;
            self.0.save_round(round, record)
        }
    }
    let mut harness = small();
    let (_, closing, _) = closing(&mut harness, &[0, 1, 2, 3, 4]);
    let request = closing.request();
    let (store, vault) =
        std::mem::replace(&mut harness.summer, summer(harness.charter.clone(), MemoryStore::default(), MemoryVault::default()))
            .into_parts();
    for writes in [0, 1] {
        let torn = Torn(store.clone(), writes);
        let mut vault_copy = MemoryVault::default();
        use dp_pvi_secagg::summer::{KeyVault, Slot};
        let Slot::Kept(key) = vault.slot(0).unwrap() else { panic!("the key is there") };
        vault_copy.keep(0, key).unwrap();
        let mut failing = dp_pvi_secagg::summer::Summer::open(harness.charter.clone(), key_of_summer(), torn, vault_copy).unwrap();
        assert!(matches!(failing.close(&request), Err(SecAggError::Store(_))));
        let (Torn(store, _), vault) = failing.into_parts();
        let mut restarted = summer(harness.charter.clone(), store, vault);
        if writes == 1 {
            assert_eq!(restarted.close(&without(&request, 0)), Err(SecAggError::SecondClosing { round: 0 }));
        }
        let answer = restarted.close(&request).unwrap();
        assert!(closing_answer_is_right(&harness, &closing, &answer));
    }
}

fn key_of_summer() -> ed25519_dalek::SigningKey {
    key(2)
}

fn closing_answer_is_right(harness: &Harness, closing: &Closing, answer: &dp_pvi_secagg::closing::MaskSum) -> bool {
    let statement = answer.statement.open(&harness.charter.body().summer).unwrap();
    statement.header == closing.request().header
}

#[test]
fn too_few_is_refused_by_server_summer_and_client() {
    let mut harness = small();
    let header = harness.header();
    let mut collecting = harness.collecting(&header);
    let mut uploads = Vec::new();
    let mut sent = Vec::new();
    for site in 0..3 {
        let (state, outgoing) = harness.part(site, &header);
        collecting.accept(&outgoing.upload, &outgoing.salt, &words(&outgoing)).unwrap();
        uploads.push(outgoing.upload);
        sent.push(state);
    }
    let few = SecAggError::TooFew { present: 3, needed: 4 };
    let request = CloseRequest { header: header.open(&harness.charter).unwrap().hash(), round: 0, uploads };
    assert_eq!(harness.summer.close(&request), Err(few.clone()));
    let rejected = collecting.close().unwrap_err();
    assert_eq!(rejected.error, few);
    // The abort is published; the charge stays, the next round follows it.
    let (entry, head) = rejected.state.publish(&harness.server);
    let (client, _) = &harness.clients[0];
    assert_eq!(sent.remove(0).settle(client, &entry).unwrap().1, Settled::Aborted);
    harness.follow(&entry, head);
    assert_eq!(
        harness.summer.close(&request),
        Err(SecAggError::Round { expected: 1, got: 0 }),
        "the aborted round is over at the summer too"
    );
}

/// Faults in the set: duplicates, strangers, other commitments. (Overlapping lists of survivors and dropouts are another system's
/// fault: here there is one list only, each name once; a second list is a second closing, refused.)
#[test]
fn sets_that_break_the_rules_are_refused() {
    let mut harness = small();
    let (header, closing, parts) = closing(&mut harness, &[0, 1, 2, 3]);
    let request = closing.request();
    let mut refused = |change: &dyn Fn(&mut CloseRequest), expected: SecAggError| {
        let mut request = request.clone();
        change(&mut request);
        assert_eq!(harness.summer.close(&request), Err(expected));
    };
    refused(&|r| r.uploads.push(r.uploads[3].clone()), SecAggError::DuplicateClient { client: name(3) });
    refused(&|r| r.uploads.swap(0, 1), SecAggError::DuplicateClient { client: name(0) });
    refused(&|r| drop(r.uploads.pop()), SecAggError::TooFew { present: 3, needed: 4 });
    refused(&|r| r.header = Hash::default(), SecAggError::SecondHeader { round: 0 });
    refused(&|r| r.round = 1, SecAggError::Round { expected: 0, got: 1 });
    let body: Upload = parts[0].1.upload.open(harness.charter.key_of(&name(0)).unwrap()).unwrap();
    let forged = |change: &dyn Fn(&mut Upload), signer: u32| {
        let mut body = body.clone();
        change(&mut body);
        let mut request = request.clone();
        request.uploads[0] = Signed::seal(&body, &key(signer));
        request
    };
    let stranger = forged(&|u| u.client = dp_pvi_names::ClientId::new("a-stranger").unwrap(), 10);
    let expected = SecAggError::UnknownClient { client: dp_pvi_names::ClientId::new("a-stranger").unwrap() };
    assert_eq!(harness.summer.close(&stranger), Err(expected));
    // A commitment exchanged after sealing (even signed by the site itself): the seed does not open.
    let other = parts[1].1.upload.open(harness.charter.key_of(&name(1)).unwrap()).unwrap();
    let swapped = forged(&|u| u.commitment = other.commitment, 10);
    assert_eq!(harness.summer.close(&swapped), Err(SecAggError::SealedSeed { client: name(0) }));
    // Another site's seed under the own name, so as to cancel its mask: likewise.
    let stolen = forged(&|u| u.seed = other.seed.clone(), 10);
    assert_eq!(harness.summer.close(&stolen), Err(SecAggError::SealedSeed { client: name(0) }));
    // Unsigned, or signed by someone else.
    let unsigned = forged(&|_| (), 11);
    assert_eq!(harness.summer.close(&unsigned), Err(SecAggError::Signature { what: "an upload" }));
    let fork = forged(&|u| u.echo = Hash::default(), 10);
    assert_eq!(harness.summer.close(&fork), Err(SecAggError::SplitView { client: name(0) }));
    let elsewhere = forged(&|u| u.header = Hash::default(), 10);
    assert_eq!(harness.summer.close(&elsewhere), Err(SecAggError::OtherHeader { client: name(0) }));
    // None of that closed the round: the honest set is answered.
    let masks = harness.summer.close(&request).unwrap();
    let completed = add_all(closing.answer(&masks).unwrap(), &spool(&parts, &[0, 1, 2, 3]), &harness.server);
    assert_eq!(completed.sum.values, harness.plain_sum(0..4));
    // The server refuses the same at its door.
    let mut collecting = harness.collecting(&header);
    let outgoing = &parts[0].1;
    let bytes = words(outgoing);
    let mut flipped = bytes.clone();
    flipped[3] ^= 1;
    assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &flipped), Err(SecAggError::Commitment { client: name(0) }));
    assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &bytes[8..]), Err(SecAggError::Size { expected: 40, got: 32 }));
    assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &bytes), Ok(Acceptance::New));
    assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &bytes), Ok(Acceptance::Again));
    let (_, second) = harness.part(0, &header);
    assert_eq!(collecting.accept(&second.upload, &second.salt, &words(&second)), Err(SecAggError::OtherUpload { client: name(0) }));
    assert_eq!(collecting.present(), 1);
}

#[test]
fn two_headers_and_other_models_are_refused() {
    let mut harness = small();
    let offer = harness.summer.offer(&mut harness.rng).unwrap();
    assert_eq!(harness.summer.offer(&mut harness.rng).unwrap(), offer, "one key a round");
    let round_key = offer.open(&harness.charter.body().summer).unwrap().key;
    let header = |model| RoundHeader::new(&harness.charter, 0, harness.head.previous, model, round_key, 0).unwrap();
    let propose = |header: &RoundHeader| ProposedHeader::new(header, &offer, &harness.charter, &harness.server);
    let first = propose(&header(model(0))).unwrap();
    let signed = harness.summer.countersign(&first).unwrap();
    assert_eq!(harness.summer.countersign(&first).unwrap(), signed, "a retry gets the same bytes");
    let second = propose(&header(model(1))).unwrap();
    assert_eq!(harness.summer.countersign(&second), Err(SecAggError::SecondHeader { round: 0 }));
    assert_eq!(harness.summer.offer(&mut harness.rng), Err(SecAggError::SecondHeader { round: 0 }));
    // A client that is shown another model than the header's.
    let (client, idle) = &harness.clients[0];
    let rejected = idle.clone().accept(client, &signed, &model(1)).unwrap_err();
    assert_eq!(rejected.error, SecAggError::OtherModel);
    // A client that is shown another header (by a summer that helps): its seed is for that header and opens under no other.
    let verified = signed.open(&harness.charter).unwrap();
    let secret = RoundSecretKey::fresh(&mut harness.rng);
    let seed = dp_pvi_secagg::mask::MaskSeed::fresh(&mut harness.rng);
    let commitment = dp_pvi_secagg::commitment::Commitment(Hash::default());
    let sealed = SealedSeed::new(&seed, &secret.public(), &Hash([1; 32]), &name(0), &commitment, &mut harness.rng).unwrap();
    assert!(secret.open(&sealed, &Hash([1; 32]), &name(0), &commitment).is_ok());
    let refused = |result: Result<_, SecAggError>| matches!(result.err(), Some(SecAggError::SealedSeed { .. }));
    assert!(refused(secret.open(&sealed, &verified.hash(), &name(0), &commitment)));
    assert!(refused(secret.open(&sealed, &Hash([1; 32]), &name(1), &commitment)));
    let other = dp_pvi_secagg::commitment::Commitment(Hash([2; 32]));
    assert!(refused(secret.open(&sealed, &Hash([1; 32]), &name(0), &other)));
    assert!(refused(RoundSecretKey::fresh(&mut harness.rng).open(&sealed, &Hash([1; 32]), &name(0), &commitment)));
}

/// Fault of another system: thresholds come from the server. Here no header and no charter below a floor is accepted.
#[test]
fn lowered_thresholds_are_refused() {
    let mut harness = small();
    let offer = harness.summer.offer(&mut harness.rng).unwrap();
    let round_key = offer.open(&harness.charter.body().summer).unwrap().key;
    let honest = RoundHeader::new(&harness.charter, 0, harness.head.previous, model(0), round_key, 0).unwrap();
    let lowered = RoundHeader { min_contributors: 1, ..honest.clone() };
    let refused = |header: &RoundHeader, field| {
        let error = ProposedHeader::new(header, &offer, &harness.charter, &harness.server).unwrap_err();
        assert_eq!(error, SecAggError::Header { field });
    };
    refused(&lowered, "minimum of contributors");
    refused(&RoundHeader { participants: Hash::default(), ..honest.clone() }, "participants");
    refused(&RoundHeader { charter: Hash::default(), ..honest.clone() }, "charter");
    refused(&RoundHeader { exponent: 0, ..honest.clone() }, "lattice");
    refused(&RoundHeader { dimension: 4, ..honest.clone() }, "lattice");
    refused(&RoundHeader { round: 3, ..honest.clone() }, "number of rounds");
    let other_key = RoundSecretKey::fresh(&mut harness.rng).public();
    refused(&RoundHeader { round_key: other_key, ..honest }, "round key");
    // Charters: whoever signs them.
    let body = body(&request(MEMBERS, 2, 5), 3);
    let accepts = |body: &CharterBody, floors: &Floors| {
        let charter = std::sync::Arc::new(signed(body).verify()?);
        Client::new(charter, name(0), key(10), floors).map(drop)
    };
    assert_eq!(accepts(&body, &floors()), Ok(()));
    let floor = |change: &dyn Fn(&mut Floors)| {
        let mut floors = floors();
        change(&mut floors);
        accepts(&body, &floors)
    };
    let refused =
        |result: Result<(), SecAggError>| assert!(matches!(result, Err(SecAggError::Charter(_) | SecAggError::Plan(_))), "{result:?}");
    refused(floor(&|f| f.min_contributors = 5));
    refused(floor(&|f| f.colluders = 2));
    refused(floor(&|f| f.max_honest = 2));
    refused(floor(&|f| f.max_rounds = 2));
    let changed = |change: &dyn Fn(&mut CharterBody)| {
        let mut body = body.clone();
        change(&mut body);
        accepts(&body, &floors())
    };
    refused(changed(&|b| b.min_contributors = 3));
    refused(changed(&|b| (b.honest, b.min_contributors) = (1, 2)));
    refused(changed(&|b| (b.honest, b.colluders) = (4, 0)));
    refused(changed(&|b| b.min_contributors = 7));
    refused(changed(&|b| (b.honest, b.colluders, b.min_contributors) = (u32::MAX, 5, 4)));
    refused(changed(&|b| b.sums[0].scale += 1));
    refused(changed(&|b| b.sums[0].exponent -= 1));
    refused(changed(&|b| b.max_units = u64::MAX));
    refused(changed(&|b| b.sums[0].rounds = 0));
    refused(changed(&|b| b.max_rounding_loss = f64::NAN));
}

/// Fault of another system: the list of public keys is unsigned.
#[test]
fn negative_unsigned_or_exchanged_keys_are_refused() {
    let body = body(&request(MEMBERS, 2, 5), 3);
    let complete = signed(&body);
    assert!(complete.verify().is_ok());
    // Any signature missing.
    for missing in 0..MEMBERS + 2 {
        let mut charter = SignedCharter::draft(&body);
        let signers = [1, 2].into_iter().chain(10..10 + MEMBERS).enumerate();
        signers.filter(|(i, _)| *i != missing as usize).for_each(|(_, signer)| charter.sign(&key(signer)).unwrap());
        assert!(matches!(charter.verify(), Err(SecAggError::Unsigned { .. })), "{missing}");
    }
    // A key exchanged by the server after the sites signed: their signatures do not fit any more.
    let mut exchanged = body.clone();
    exchanged.members[3].key = PublicKey::of(&key(99));
    let mut charter = SignedCharter::draft(&exchanged);
    [1, 2, 99].into_iter().for_each(|signer| charter.sign(&key(signer)).unwrap());
    assert!(charter.verify().is_err() && charter.sign(&key(13)).is_err());
    // Signed by all, but not this site's key; two parties with one key; a key of small order.
    let verified = std::sync::Arc::new(complete.verify().unwrap());
    assert!(Client::new(verified.clone(), name(0), key(11), &floors()).is_err());
    assert!(Client::new(verified, dp_pvi_names::ClientId::new("nobody").unwrap(), key(10), &floors()).is_err());
    for key in [PublicKey::of(&key(10)), PublicKey([0; 32])] {
        let mut body = body.clone();
        body.summer = key;
        assert!(matches!(SignedCharter::draft(&body).verify(), Err(SecAggError::Charter(_))));
    }
    let mut unordered = body;
    unordered.members.swap(0, 1);
    assert!(matches!(SignedCharter::draft(&unordered).verify(), Err(SecAggError::Charter(_))));
    assert!(matches!(request(2, 0, 5).plan(), Err(PlanError::BuysNothing { .. })));
}

/// Fault of another system: the server names survivors and dropouts in two lists, no one looks whether they overlap, and both secrets of a
/// client on both lists come out. Here a client counts as a survivor once, or not at all, for the whole life of a round.
#[test]
fn negative_no_client_is_a_survivor_and_a_dropout() {
    let mut harness = small();
    let (_, closing, parts) = closing(&mut harness, &[0, 1, 2, 3, 4]);
    let request = closing.request();
    // Twice a survivor.
    let mut twice = request.clone();
    twice.uploads.insert(2, request.uploads[2].clone());
    assert_eq!(harness.summer.close(&twice), Err(SecAggError::DuplicateClient { client: name(2) }));
    // A survivor for the summer, then a dropout, in either order: the first word stands.
    let masks = harness.summer.close(&request).unwrap();
    for dropped in 0..5 {
        assert_eq!(harness.summer.close(&without(&request, dropped)), Err(SecAggError::SecondClosing { round: 0 }));
    }
    // A dropout for the sites although the summer summed it: the summer's signature is over another set.
    let entry = add_all(closing.answer(&masks).unwrap(), &spool(&parts, &[0, 1, 2, 3, 4]), &harness.server).entry;
    let mut fewer = entry.open(&harness.charter.body().server).unwrap();
    if let Outcome::Completed { contributors, .. } = &mut fewer.outcome {
        *contributors = ContributorSet::new(contributors.members()[1..].to_vec(), &harness.charter).unwrap();
    }
    let fewer = Signed::seal(&fewer, &harness.server);
    for (site, (sent, _)) in parts.into_iter().enumerate() {
        let (client, _) = &harness.clients[site];
        assert_eq!(sent.clone().settle(client, &fewer).unwrap_err().error, SecAggError::OtherClosing);
        assert_eq!(sent.settle(client, &entry).unwrap().1, Settled::Included);
    }
    // In the other order: a round that closed without a site is closed for it.
    let mut harness = small();
    let (_, closing, _) = self::closing(&mut harness, &[0, 1, 2, 3, 4]);
    let request = closing.request();
    harness.summer.close(&without(&request, 4)).unwrap();
    assert_eq!(harness.summer.close(&request), Err(SecAggError::SecondClosing { round: 0 }));
}

#[test]
fn replayed_and_forked_rounds_are_refused() {
    let mut harness = small();
    let sites = [0, 1, 2, 3];
    let (header, closing, mut parts) = closing(&mut harness, &sites);
    let request = closing.request();
    let masks = harness.summer.close(&request).unwrap();
    let completed = add_all(closing.answer(&masks).unwrap(), &spool(&parts, &sites), &harness.server);
    let entry = completed.entry.open(&harness.charter.body().server).unwrap();
    let (client, _) = &harness.clients[0];
    let (sent, outgoing) = parts.remove(0);
    let reseal = |change: &dyn Fn(&mut TranscriptEntry)| {
        let mut entry = entry.clone();
        change(&mut entry);
        Signed::seal(&entry, &key(1))
    };
    let contributors = |entry: &TranscriptEntry| match &entry.outcome {
        Outcome::Completed { contributors, .. } => contributors.members().to_vec(),
        Outcome::Aborted => panic!("it completed"),
    };
    let members = contributors(&entry);
    let refused = |entry: &dp_pvi_secagg::transcript::SignedEntry, expected: SecAggError| {
        let rejected = sent.clone().settle(client, entry).unwrap_err();
        assert_eq!((rejected.error, &rejected.state), (expected, &sent));
    };
    refused(&Signed::seal(&entry, &key(2)), SecAggError::Signature { what: "the transcript entry" });
    refused(&reseal(&|e| e.round = 1), SecAggError::Round { expected: 0, got: 1 });
    refused(&reseal(&|e| e.previous = Hash::default()), SecAggError::Chain);
    refused(&reseal(&|e| (e.header, e.outcome) = (Hash::default(), Outcome::Aborted)), SecAggError::Chain);
    // A set that the summer did not sum: without this site, or with another commitment of it.
    let other_set = |members: Vec<_>| {
        let set = ContributorSet::new(members, &harness.charter).unwrap();
        reseal(&|e| {
            if let Outcome::Completed { contributors, .. } = &mut e.outcome {
                *contributors = set.clone();
            }
        })
    };
    let mut exchanged = members.clone();
    exchanged[0].1 = members[1].1;
    refused(&other_set(exchanged), SecAggError::OtherClosing);
    let mut replaced = members.clone();
    replaced.remove(0);
    replaced.push((name(5), members[0].1));
    refused(&other_set(replaced), SecAggError::OtherClosing);
    // The honest entry; then the round again.
    let (idle, settled) = sent.settle(client, &completed.entry).unwrap();
    assert_eq!(settled, Settled::Included);
    let old = completed.head;
    harness.summer.follow(&completed.entry).unwrap();
    harness.head = completed.head;
    assert_eq!(idle.clone().accept(client, &header, &model(0)).unwrap_err().error, SecAggError::Round { expected: 1, got: 0 });
    assert_eq!(idle.clone().settle(client, &completed.entry).unwrap_err().error, SecAggError::Round { expected: 1, got: 0 });
    assert_eq!(harness.summer.close(&request), Err(SecAggError::Round { expected: 1, got: 0 }));
    assert!(harness.summer.follow(&completed.entry).is_err());
    // The next header must continue this transcript, for the summer and for the client.
    let offer = harness.summer.offer(&mut harness.rng).unwrap();
    let round_key = offer.open(&harness.charter.body().summer).unwrap().key;
    let forked = RoundHeader::new(&harness.charter, 1, Hash::default(), model(1), round_key, 0).unwrap();
    let forked = ProposedHeader::new(&forked, &offer, &harness.charter, &harness.server).unwrap();
    assert_eq!(harness.summer.countersign(&forked), Err(SecAggError::Chain));
    let header = RoundHeader::new(&harness.charter, 1, old.previous, model(1), round_key, 0).unwrap();
    let next = harness.summer.countersign(&ProposedHeader::new(&header, &offer, &harness.charter, &harness.server).unwrap()).unwrap();
    let (straggler, lost) = &harness.clients[5];
    assert_eq!(lost.clone().accept(straggler, &next, &model(1)).unwrap_err().error, SecAggError::Round { expected: 0, got: 1 });
    assert!(idle.accept(client, &next, &model(1)).is_ok());
    // An upload of round 0 is no upload of round 1.
    let mut collecting = harness.collecting(&next);
    assert_eq!(collecting.accept(&outgoing.upload, &outgoing.salt, &words(&outgoing)), Err(SecAggError::OtherHeader { client: name(0) }));
    assert_eq!(Head::replay(&harness.charter, [&completed.entry]).unwrap(), old);
    assert!(Head::replay(&harness.charter, [&completed.entry, &completed.entry]).is_err());
}

/// What the server does with a wrong answer, a missing vector, or a sum that no one honest can have sent.
#[test]
fn answers_and_sums_that_cannot_be_right_are_refused() {
    let mut harness = small();
    let sites = [0, 1, 2, 3];
    let (_, closing, parts) = closing(&mut harness, &sites);
    let masks = harness.summer.close(&closing.request()).unwrap();
    let mut other = masks.clone();
    other.words[0] ^= 1;
    let closing = closing.answer(&other).map(drop).map_err(|rejected| (rejected.state, rejected.error)).unwrap_err();
    assert_eq!(closing.1, SecAggError::OtherClosing);
    let mut short = masks.clone();
    short.words.truncate(32);
    let closing = closing.0.answer(&short).map(drop).map_err(|rejected| (rejected.state, rejected.error)).unwrap_err();
    assert_eq!(closing.1, SecAggError::Size { expected: 40, got: 32 });
    let mut summing = closing.0.answer(&masks).unwrap();
    let spool = spool(&parts, &sites);
    summing.add(&spool[0].0, &spool[0].1).unwrap();
    assert_eq!(summing.add(&spool[0].0, &spool[0].1), Err(SecAggError::DuplicateClient { client: name(0) }));
    assert_eq!(summing.add(&name(5), &spool[0].1), Err(SecAggError::DuplicateClient { client: name(5) }));
    let rejected = summing.finish(&harness.server).unwrap_err();
    assert_eq!(rejected.error, SecAggError::Incomplete { missing: 3 });
    let mut summing = rejected.state;
    for (client, words) in &spool[1..3] {
        summing.add(client, words).unwrap();
    }
    // A vector that is not what was masked leaves a uniform sum.
    summing.add(&spool[3].0, &[0x77; 40]).unwrap();
    let rejected = summing.finish(&harness.server).unwrap_err();
    assert_eq!(rejected.error, SecAggError::SumOutOfRange);
    let (entry, head) = rejected.state.abort().publish(&harness.server);
    assert_eq!(Head::replay(&harness.charter, [&entry]).unwrap(), head);
}

/// What the server makes of a sum: the masks of three sites, and a total that is this vector under them.
fn sum_of(request: &dp_pvi_secagg::plan::PlanRequest, vector: &[i64]) -> Result<Vec<i64>, SecAggError> {
    let mut harness = Harness::new(request, 1);
    let (_, closing, _) = closing(&mut harness, &[0, 1, 2]);
    let masks = harness.summer.close(&closing.request()).unwrap();
    let mut total = RingSum::from_bytes(request.dimension, &masks.words).unwrap();
    let vector = LatticeVector { exponent: 0, values: vector.to_vec() };
    total.add_bytes(&ring::to_bytes(&vector)).unwrap();
    let mut summing = closing.answer(&masks).unwrap();
    summing.add_total(&total.to_bytes()).unwrap();
    match summing.finish(&harness.server) {
        Ok(completed) => Ok(completed.sum.values),
        Err(rejected) => {
            // The round ends for all, and its entry lists no one.
            let (entry, _) = rejected.state.abort().publish(&harness.server);
            let entry = entry.open(&harness.charter.body().server).unwrap();
            assert_eq!(entry.outcome, Outcome::Aborted);
            Err(rejected.error)
        }
    }
}

/// Each half of the bound turns vectors away that the other admits, and the number of terms is that of a sample.
#[test]
fn an_aggregated_sum_out_of_bounds_ends_the_round_and_names_nobody() {
    let bound = |request: &dp_pvi_secagg::plan::PlanRequest| SumBound::of_shares(&request.plan().unwrap().mechanism, 3);
    #[allow(clippy::cast_possible_truncation)]
    let longest = |request: &dp_pvi_secagg::plan::PlanRequest| bound(request).norm().floor() as i64;
    let most = |request: &dp_pvi_secagg::plan::PlanRequest| i64::try_from(bound(request).coordinate()).unwrap();

    // Few coordinates: a vector as long as no one's can be, with every coordinate within its bound.
    let few = request(3, 0, 5);
    let each = longest(&few) / 2;
    assert!(each <= most(&few) && most(&few) > longest(&few));
    assert_eq!(sum_of(&few, &[each; 5]), Err(SecAggError::SumOutOfRange));
    assert_eq!(sum_of(&few, &[each, -each, each, 0, 0]), Ok(vec![each, -each, each, 0, 0]));

    // Many coordinates: one of them beyond what any noise makes of it, in a vector that is short enough.
    let many = request(3, 0, 20_000);
    let beyond = most(&many) + 1;
    assert!(beyond < longest(&many));
    let one = |value: i64| (0..20_000).map(|j| if j == 7 { value } else { 0 }).collect::<Vec<_>>();
    assert_eq!(sum_of(&many, &one(beyond)), Err(SecAggError::SumOutOfRange));
    assert_eq!(sum_of(&many, &one(-beyond)), Err(SecAggError::SumOutOfRange));
    assert_eq!(sum_of(&many, &one(-most(&many))), Ok(one(-most(&many))));

    // Under sampling a site has no more terms than a sample: what all its units together could give is out of bounds.
    let all = dp_pvi_secagg::plan::PlanRequest { max_units: 100_000, max_rounding_loss: 1.0, terms: Terms::Units, ..request(3, 0, 5) };
    let sampled = dp_pvi_secagg::plan::PlanRequest { sampling: Some(SamplingRate::nearest(0.01).unwrap()), ..all.clone() };
    let value = 2 * longest(&sampled);
    assert!(value < longest(&all).min(most(&all)));
    assert_eq!(sum_of(&all, &[value, 0, 0, 0, 0]), Ok(vec![value, 0, 0, 0, 0]));
    assert_eq!(sum_of(&sampled, &[value, 0, 0, 0, 0]), Err(SecAggError::SumOutOfRange));
}

/// Every integer of a charter's text beyond its bound: refused where the text is read, before anything is computed from it.
#[test]
fn every_integer_of_a_charter_is_bounded() {
    let good = body(&request(MEMBERS, 2, 5), 3);
    let read = |change: &dyn Fn(&mut CharterBody)| {
        let mut body = good.clone();
        change(&mut body);
        let draft = SignedCharter::draft(&body);
        let read = draft.text().map(drop);
        // Nothing that is read otherwise gets farther.
        if read.is_err() {
            assert_eq!(draft.check_text().map(drop), read);
            assert_eq!(draft.verify().map(drop), read);
        }
        read
    };
    assert_eq!(read(&|_| ()), Ok(()));
    let refused = |change: &dyn Fn(&mut CharterBody)| assert!(matches!(read(change), Err(SecAggError::Charter(_))), "{:?}", read(change));
    let member = |site: u32| Member { id: name(site), key: PublicKey([0; 32]) };
    assert_eq!(read(&|b| b.members = (0..bounds::MEMBERS).map(member).collect()), Ok(()));
    refused(&|b| b.members = (0..=bounds::MEMBERS).map(member).collect());
    for above in [MEMBERS + 1, u32::MAX] {
        refused(&|b| b.honest = above);
        refused(&|b| b.colluders = above);
        refused(&|b| b.min_contributors = above);
    }
    assert_eq!(read(&|b| b.sums[0].rounds = bounds::ROUNDS), Ok(()));
    for rounds in [0, bounds::ROUNDS + 1, u32::MAX] {
        refused(&|b| b.sums[0].rounds = rounds);
    }
    refused(&|b| b.sums.clear());
    // Many parts of few rounds, and parts whose rounds overflow their type together.
    refused(&|b| b.sums = vec![SumRounds { rounds: 1, ..b.sums[0].clone() }; bounds::ROUNDS as usize + 1]);
    refused(&|b| b.sums = vec![SumRounds { rounds: u32::MAX, ..b.sums[0].clone() }, SumRounds { rounds: 2, ..b.sums[0].clone() }]);
    assert_eq!(read(&|b| b.sums[0].dimension = bounds::DIMENSION), Ok(()));
    for dimension in [0, bounds::DIMENSION + 1, u32::MAX] {
        refused(&|b| b.sums[0].dimension = dimension);
    }
    assert_eq!(read(&|b| b.max_units = 1 << 32), Ok(()));
    for units in [0, (1 << 32) + 1, u64::MAX] {
        refused(&|b| b.max_units = units);
    }
    for loss in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.5] {
        refused(&|b| b.max_rounding_loss = loss);
    }
    refused(&|b| b.run.number = u32::MAX);

    // A header says one number that no charter fixes.
    let mut harness = small();
    let offer = harness.summer.offer(&mut harness.rng).unwrap();
    let round_key = offer.open(&harness.charter.body().summer).unwrap().key;
    let header = |deadline| RoundHeader::new(&harness.charter, 0, harness.head.previous, model(0), round_key, deadline).unwrap();
    let propose = |deadline| ProposedHeader::new(&header(deadline), &offer, &harness.charter, &harness.server).map(drop);
    assert_eq!(propose(bounds::DEADLINE), Ok(()));
    for deadline in [bounds::DEADLINE + 1, u64::MAX] {
        assert_eq!(propose(deadline), Err(SecAggError::Header { field: "deadline" }));
    }
}

/// Rounds without a header (the summer lost its key) are skipped by everyone; after the last round there is no key.
#[test]
fn rounds_can_be_skipped_and_end() {
    let mut harness = small();
    for round in 0..3 {
        assert_eq!(harness.head.round, round);
        let (entry, head) = skip(&harness.charter, harness.head, &harness.server);
        for (client, idle) in &mut harness.clients {
            *idle = idle.clone().settle(client, &entry).unwrap();
        }
        harness.follow(&entry, head);
    }
    assert_eq!(harness.summer.offer(&mut harness.rng), Err(SecAggError::Header { field: "number of rounds" }));
}

/// A bad seed is named before the set is fixed, so that the others' round can still close.
#[test]
fn a_site_with_a_bad_seed_is_left_out() {
    let mut harness = small();
    let header = harness.header();
    let verified = header.open(&harness.charter).unwrap();
    let mut collecting = harness.collecting(&header);
    let mut spool = Vec::new();
    for site in 0..5 {
        let (_, mut outgoing) = harness.part(site, &header);
        if site == 2 {
            let mut upload = outgoing.upload.open(harness.charter.key_of(&name(2)).unwrap()).unwrap();
            let seed = dp_pvi_secagg::mask::MaskSeed::fresh(&mut harness.rng);
            let elsewhere = RoundSecretKey::fresh(&mut harness.rng).public();
            upload.seed = SealedSeed::new(&seed, &elsewhere, &verified.hash(), &name(2), &upload.commitment, &mut harness.rng).unwrap();
            outgoing.upload = Signed::seal(&upload, &key(12));
        } else {
            spool.push((name(site), words(&outgoing)));
        }
        collecting.accept(&outgoing.upload, &outgoing.salt, &words(&outgoing)).unwrap();
    }
    let closing = collecting.close().unwrap();
    assert_eq!(harness.summer.close(&closing.request()), Err(SecAggError::SealedSeed { client: name(2) }));
    let closing = closing.without(&name(2)).unwrap();
    let masks = harness.summer.close(&closing.request()).unwrap();
    let completed = add_all(closing.answer(&masks).unwrap(), &spool, &harness.server);
    assert_eq!(completed.sum.values, harness.plain_sum([0, 1, 3, 4]));
    let (client, idle) = &harness.clients[2];
    assert!(idle.clone().settle(client, &completed.entry).is_ok());
}

/// Nothing that is written to disk or sent names a seed, a share or a key: states are plain data and come back the same.
#[test]
fn states_survive_a_restart() {
    let mut harness = small();
    let header = harness.header();
    let (sent, outgoing) = harness.part(0, &header);
    let state = dp_pvi_secagg::client::ClientState::Sent(sent);
    let bytes = postcard::to_stdvec(&state).unwrap();
    assert_eq!(postcard::from_bytes::<dp_pvi_secagg::client::ClientState>(&bytes).unwrap(), state);
    let upload = postcard::to_stdvec(&outgoing.upload).unwrap();
    assert_eq!(postcard::from_bytes::<dp_pvi_secagg::upload::SignedUpload>(&upload).unwrap(), outgoing.upload);
    assert!(upload.len() < 400, "{} bytes beside the vector", upload.len());
    let charter = postcard::to_stdvec(&harness.signed).unwrap();
    assert_eq!(postcard::from_bytes::<SignedCharter>(&charter).unwrap().verify().unwrap(), *harness.charter);
    // Every cut is refused.
    for cut in 0..charter.len() {
        let read = postcard::from_bytes::<SignedCharter>(&charter[..cut]);
        assert!(read.is_err() || read.unwrap().verify().is_err());
    }
}
