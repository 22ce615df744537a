//! Aggregated sums in the ledger: two losses, a cap on the fallback, and masked updates that survive crashes as the same bytes.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use rand_core::Rng;

use super::*;
use crate::SecureNoise;
use crate::danger::assume_public;
use crate::mechanism::{CleanTerms, Masked, ReleaseError, ShareSum, Summation, Summed};
use crate::records::{Argument, Sensitive, UnitTable, Units};
use dp_pvi_accounting::{ClipNorm, NoiseMultiplier};
use dp_pvi_unsealed::Unsealed;

fn mechanism() -> ShareSum {
    let (clip, noise) = (ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(8.0).unwrap());
    ShareSum::new(4, clip, noise, 16, 10, None, Terms::Units).unwrap()
}

/// Row k of 3 has k+1 tenths everywhere.
struct Rows;

impl UnitTable for Rows {
    type Unit<'a> = f64;
    fn len(&self) -> usize {
        3
    }
    fn unit(&self, position: usize) -> f64 {
        (position as f64 + 1.0) / 10.0
    }
}

fn fill(&(): &(), sum: Summation<'_, Rows>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|value, _, (), term| term.extend((0..4).map(|i| (i, value)))))
}

fn reserve(ledger: &mut TestLedger, id: &ReleaseId) -> Result<crate::Permit, LedgerError> {
    ledger.reserve(id, (&mechanism().event(), Some(&mechanism().fallback_event())), header(id.round))
}

/// A whole visit: the masked share with the clean terms as the pending change, and the pad.
fn visit(permit: crate::Permit) -> (Masked<LatticeVector>, Sensitive<CleanTerms>, Vec<u64>) {
    let step = permit.into_steps().next().unwrap();
    let (share, clean) =
        mechanism().share_sum_keeping(&Units::new(Rows), &Sensitive::of(()), &Argument::nothing(), fill, step, &SecureNoise).unwrap();
    let mut pad = ChaCha20Rng::from_seed([7; 32]);
    let mut again = ChaCha20Rng::from_seed([7; 32]);
    (share.mask(&mut pad), clean, (0..4).map(|_| again.next_u64()).collect())
}

fn dense(clean: &Sensitive<CleanTerms>) -> Pending {
    Pending::Private(clean.map(&Argument::nothing(), |(), terms| terms.to_dense()))
}

fn under_mask(message: Vec<u8>, vector: Masked<LatticeVector>, pending: Pending) -> Attachment {
    assume_signed(Unsealed, message, Payload::Masked(vector.into_inner()), pending)
}

#[test]
fn both_losses_are_booked_and_answered() {
    let (store, mut ledger) = fresh(1e6);
    reserve(&mut ledger, &release(0, 0)).unwrap();
    reserve(&mut ledger, &release(1, 0)).unwrap();
    ledger.reserve(&release(2, 0), &event(), header(0)).unwrap();
    let (joint, own) = (mechanism().event(), mechanism().fallback_event());
    for ledger in [&ledger, &open(&store, budget(1e6)).unwrap()] {
        let close = |loss: PrivacyLoss, events: &[DpEvent]| assert!((loss.epsilon.get() / charged(events) - 1.0).abs() < 1e-12);
        let all = ledger.losses();
        close(all.joint, &[joint.clone(), joint.clone(), event()]);
        close(all.fallback, &[own.clone(), own.clone(), event()]);
        let run = ledger.losses_in(&run(1));
        close(run.joint, std::slice::from_ref(&joint));
        close(run.fallback, std::slice::from_ref(&own));
        assert!(run.fallback.epsilon.get() > 3.0 * run.joint.epsilon.get());
        assert_eq!(ledger.losses_in(&super::run(9)).fallback.epsilon, Epsilon::ZERO);
    }
    // Without aggregation there is one loss.
    let (_, mut local) = fresh(10.0);
    local.reserve(&release(0, 0), &event(), header(0)).unwrap();
    assert_eq!(local.losses().joint, local.losses().fallback);
}

#[test]
fn a_cap_on_the_fallback_refuses_what_the_budget_allows() {
    let own = mechanism().fallback_event();
    let cap = charged(&[own.clone(), own.clone()]);
    let store = MemoryStore::new(Unsealed);
    let capped = || open(&store, Budget { max_fallback: Some(Epsilon::new(cap).unwrap()), ..budget(1e6) }).unwrap();
    let mut ledger = capped();
    reserve(&mut ledger, &release(0, 0)).unwrap();
    let admits = |ledger: &TestLedger, times| ledger.would_admit(&run(7), &[(mechanism().event(), times)], Some(&[(own.clone(), times)]));
    assert!(admits(&ledger, 1).is_ok());
    assert!(matches!(admits(&ledger, 2), Err(LedgerError::OverFallback { .. })));
    reserve(&mut ledger, &release(0, 1)).unwrap();
    let rows = store.len();
    match reserve(&mut ledger, &release(0, 2)) {
        Err(LedgerError::OverFallback { would_be, limit }) => {
            assert!((would_be / charged(&[own.clone(), own.clone(), own.clone()]) - 1.0).abs() < 1e-9 && (limit - cap).abs() < 1e-12);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.len(), rows, "a refusal writes nothing");
    // After a crash the same reservation is given again, at no new charge.
    assert!(reserve(&mut capped(), &release(0, 1)).is_ok());
    // A local release counts towards the cap with its own loss; without a cap everything goes.
    assert!(matches!(capped().reserve(&release(1, 3), &event(), header(3)), Err(LedgerError::OverFallback { .. })));
    assert!(reserve(&mut open(&store, budget(1e6)).unwrap(), &release(0, 2)).is_ok());
    // The budget still holds for the joint loss.
    let joint = mechanism().event();
    let mut poor = open(&MemoryStore::new(Unsealed), budget(charged(std::slice::from_ref(&joint)) * 0.99)).unwrap();
    assert!(matches!(reserve(&mut poor, &release(0, 0)), Err(LedgerError::OverBudget { .. })));
}

#[test]
fn a_reservation_is_for_one_pair_of_events() {
    let (store, mut ledger) = fresh(1e6);
    reserve(&mut ledger, &release(0, 0)).unwrap();
    let mut again = open(&store, budget(1e6)).unwrap();
    let conflict = |result: Result<crate::Permit, LedgerError>| assert!(matches!(result, Err(LedgerError::Conflict(_))));
    conflict(again.reserve(&release(0, 0), &mechanism().event(), header(0)));
    conflict(again.reserve(&release(0, 0), (&mechanism().event(), Some(&event())), header(0)));
    let share = |permit: crate::Permit| {
        let step = permit.into_steps().next().unwrap();
        mechanism().share_sum_with(&Units::new(Rows), &Sensitive::of(()), &Argument::nothing(), fill, step, &SecureNoise).map(drop)
    };
    share(reserve(&mut again, &release(0, 0)).unwrap()).unwrap();
    // A permit whose fallback was not booked, or booked as something else, releases nothing.
    let without = again.reserve(&release(1, 1), &mechanism().event(), header(1)).unwrap();
    assert!(matches!(share(without), Err(ReleaseError::PermitMismatch)));
    let other = again.reserve(&release(0, 2), (&mechanism().event(), Some(&event())), header(2)).unwrap();
    assert!(matches!(share(other), Err(ReleaseError::PermitMismatch)));
    // Several steps: the fallback is split with the event.
    let (joint, own) = (mechanism().event().repeated(3), mechanism().fallback_event().repeated(3));
    let steps = again.reserve(&release(0, 3), (&joint, Some(&own)), header(3)).unwrap().into_steps();
    assert!(steps.map(|step| step.fallback().cloned()).eq(std::iter::repeat_n(Some(mechanism().fallback_event()), 3)));
}

/// RESERVED: nothing is on disk and the visit is made again, with fresh noise. From COMMITTED on: the same masked words, the same
/// message, whatever happens, until it is settled; then the words and the clean terms are gone and the state has moved.
#[test]
fn a_masked_update_survives_every_crash_as_the_same_bytes() {
    let (store, mut ledger) = fresh(1e6);
    let id = release(0, 0);
    let (lost, ..) = visit(reserve(&mut ledger, &id).unwrap());
    let mut ledger = open(&store, budget(1e6)).unwrap();
    assert!(ledger.attachment(&id).unwrap().is_none());
    let (vector, clean, _) = visit(reserve(&mut ledger, &id).unwrap());
    assert_ne!(vector, lost, "noise that was not committed is gone");
    let words = vector.get().clone();
    let pending = dense(&clean);
    ledger.commit(&id, &under_mask(b"upload".to_vec(), vector, pending)).unwrap();
    type Step = fn(&mut TestLedger, &ReleaseId);
    let steps: [Step; 3] = [|_, _| (), |ledger, id| ledger.sent(id).unwrap(), |ledger, id| ledger.receipted(id, Hash::default()).unwrap()];
    for step in steps {
        step(&mut ledger, &id);
        ledger = open(&store, budget(1e6)).unwrap();
        assert!(matches!(reserve(&mut ledger, &id), Err(LedgerError::Conflict(_))), "never made twice");
        let stored = ledger.attachment(&id).unwrap().unwrap();
        assert_eq!((stored.message(), stored.payload()), (&b"upload"[..], &Payload::Masked(words.clone())));
    }
    let state = ledger.settle(&id, true, 0.5).unwrap();
    let mut ledger = open(&store, budget(1e6)).unwrap();
    assert!(ledger.attachment(&id).unwrap().is_none() && ledger.message(&id).unwrap().unwrap() == b"upload");
    assert_eq!(ledger.site_state(&run(0)).unwrap().kind(), state.kind());
    let moved = assume_public(Unsealed, state.private(|| unreachable!()).unwrap()).into_inner();
    // Three units of four coordinates, half of what each added: 0.05, 0.1, 0.15 on the lattice.
    let step = 2f64.powi(mechanism().exponent());
    for (i, x) in moved.iter().enumerate() {
        let exact = 0.05 * (i / 4 + 1) as f64;
        assert!(*x <= exact && exact - x <= 0.5 * step, "{x} {exact}");
    }
    // An aborted round: the charge stays, the state does not move.
    let id = release(0, 1);
    let (vector, clean, _) = visit(reserve(&mut ledger, &id).unwrap());
    ledger.commit(&id, &under_mask(Vec::new(), vector, dense(&clean))).unwrap();
    let spent = ledger.losses();
    assert_eq!(assume_public(Unsealed, ledger.settle(&id, false, 0.5).unwrap().private(|| unreachable!()).unwrap()).into_inner(), moved);
    assert_eq!(ledger.losses(), spent);
}

/// R2 on the disk: of a share only the masked words are ever written; neither the share nor the pad.
#[test]
fn neither_share_nor_pad_reaches_the_disk() {
    let (store, mut ledger) = fresh(1e6);
    let id = release(0, 0);
    let (vector, clean, pad) = visit(reserve(&mut ledger, &id).unwrap());
    let masked = vector.get().values.clone();
    let share: Vec<i64> = masked.iter().zip(&pad).map(|(x, pad)| x.wrapping_sub(pad.cast_signed())).collect();
    assert!(share.iter().all(|x| x.unsigned_abs() < 1 << 40), "{share:?}");
    let on_disk = |word: i64| {
        let (word, mut found) = (word.to_le_bytes(), false);
        store.tamper(|rows, attachments, factors| {
            let rows = rows.iter().flat_map(|row| [&row.bytes, &row.signature]);
            found = rows.chain(attachments.values()).chain(factors.values()).any(|bytes| bytes.windows(8).any(|window| window == word));
        });
        found
    };
    let check = |committed: bool| {
        assert!(masked.iter().all(|&word| on_disk(word) == committed));
        assert!(share.iter().all(|&word| !on_disk(word)) && pad.iter().all(|pad| !on_disk(pad.cast_signed())));
        // Nor as numbers.
        assert!(share.iter().all(|&word| !on_disk((word as f64 * 2f64.powi(mechanism().exponent())).to_bits().cast_signed())));
    };
    check(false);
    ledger.commit(&id, &under_mask(Vec::new(), vector, dense(&clean))).unwrap();
    check(true);
    ledger.sent(&id).unwrap();
    check(true);
    ledger.settle(&id, true, 1.0).unwrap();
    check(false);
}

/// The form of the file names these bytes.
#[test]
fn rows_have_the_bytes_of_their_form() {
    let body = |fallback| RowBody::Reserved { release: release(3, 4), event: vec![1, 0], header: Hash([9; 32]), fallback };
    let bytes = |body| postcard::to_stdvec(&Row { seq: 5, previous: Hash([8; 32]), body }).unwrap();
    let (plain, aggregated) = (bytes(body(None)), bytes(body(Some(vec![1, 0]))));
    let expected = [&[5][..], &[8; 32], &[1], &run(3).task.0, &[3, 4], b"here", &[4, 2, 1, 0], &[9; 32], &[0]].concat();
    assert_eq!(plain, expected);
    let expected = [&[5][..], &[8; 32], &[1], &run(3).task.0, &[3, 4], b"here", &[4, 2, 1, 0], &[9; 32], &[1, 2, 1, 0]].concat();
    assert_eq!(aggregated, expected);
    for (bytes, fallback) in [(plain, None), (aggregated, Some(vec![1, 0]))] {
        assert_eq!(postcard::from_bytes::<Row>(&bytes).unwrap().body, body(fallback));
    }
    // The others, by their numbers.
    let number = |body: RowBody| postcard::to_stdvec(&body).unwrap()[0];
    let id = || release(0, 0);
    let bodies = [
        RowBody::Genesis(identity()),
        body(None),
        RowBody::Planned {
            run: run(0),
            delta: Delta::new(1e-5).unwrap(),
            joint: PlannedEvents { events: Vec::new(), envelope: None },
            fallback: None,
        },
        RowBody::Retried { release: id() },
        RowBody::Committed { release: id(), attachment: Hash::default() },
        RowBody::Sent { release: id() },
        RowBody::Receipted { release: id(), receipt: Hash::default() },
        RowBody::Settled { release: id(), included: true, factor: Hash::default() },
        RowBody::Frozen(FreezeState::Open),
        RowBody::Units(String::new()),
        RowBody::Restored,
        RowBody::Renounced { run: run(0) },
        RowBody::Records { run: run(0), of: Hash::default() },
    ];
    assert!(bodies.into_iter().map(number).eq(0..13));
}
