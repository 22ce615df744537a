//! Copies of a ledger that were made while a visit was computed, put back after its update was sent.

use dp_pvi_privacy::ledger::{Closed, FreezeState};

use super::*;

/// A copy that is made while a visit is computed ends with the head that the update signs. The update says that there is a row more.
#[test]
fn a_copy_made_during_training_is_noticed_by_the_update_that_it_lacks() {
    let task = dp_visits();
    for restarted in [false, true] {
        let (mut desk, disk, mut site_, start) = asked(&task);
        let Step::Train(_) = site_.on_next(next(&start)).unwrap() else { panic!("not asked to train") };
        if restarted {
            // Then a hello signs this head, too, before the update.
            drop(site_);
            site_ = site("a", &disk);
            welcome(&mut site_, &mut desk).unwrap();
            let Step::Train(_) = site_.on_next(next(&start)).unwrap() else { panic!("not asked to train") };
        }
        let backup = disk.copy();
        let reserved = site_.ledger().head();
        let outgoing = site_.on_trained(trained([1.0, 2.0, 3.0, 4.0]), &mut SecureNoise::fresh().unwrap()).unwrap();
        deliver(&mut site_, &mut desk, &outgoing);
        drop(site_);
        // The disk is lost and the copy is put back; the server remembers.
        let mut old = site("a", &backup);
        assert_eq!(old.ledger().head(), reserved);
        let refused = welcome(&mut old, &mut desk);
        match refused {
            Err(SiteError::Ledger(LedgerError::RolledBack { witnessed, here })) => assert_eq!((witnessed, here), (here + 1, reserved.seq)),
            other => panic!("{other:?}"),
        }
        // A copy that went on with other rows is no better.
        let mut ledger = ledger("a", &backup, budget()).unwrap();
        ledger.set_frozen(FreezeState::Frozen).unwrap();
        let mut other = Participant::new(identity("a"), lax(), 100, ledger);
        let refused = welcome(&mut other, &mut desk);
        assert!(matches!(refused, Err(SiteError::Ledger(LedgerError::Forked { seq })) if seq == reserved.seq + 1), "{refused:?}");
        // The ledger that sent the update is fine.
        welcome(&mut site("a", &disk), &mut desk).unwrap();
    }
}

/// A server that keeps silent about what it has seen: what was reserved in a copy that is put back is closed by `ledger restore`.
#[test]
fn a_closed_reservation_is_never_run_again_and_the_round_is_refused() {
    let (mut desk, disk, mut site_, start) = asked(&dp_visits());
    let Step::Train(_) = site_.on_next(next(&start)).unwrap() else { panic!("not asked to train") };
    let backup = disk.copy();
    let mut copy = ledger("a", &backup, budget()).unwrap();
    let spent = copy.losses().joint;
    assert_eq!(copy.close_open().unwrap().reservations, 1);
    assert_eq!(copy.close_open().unwrap(), Closed { reservations: 0, plans: 0 });
    assert_eq!(copy.losses().joint, spent, "it stays charged");
    let mut site = Participant::new(identity("a"), lax(), 100, copy);
    welcome(&mut site, &mut desk).unwrap();
    match site.on_next(next(&start)).unwrap() {
        Step::Refuse(refusal, reason) => {
            assert_eq!(reason, RefusalReason::Spent);
            assert_eq!(refusal.open(&key("a").verifying_key()).unwrap().release.round, 0);
        }
        _ => panic!("a closed reservation was minted again"),
    }
    // The next round is a visit like any other.
    assert!(matches!(site.on_next(next(&next_round(&start, Vec::new(), |_| ()))).unwrap(), Step::Train(_)));
}

fn dp_visits() -> ResolvedTask {
    task("schedule = \"synchronous\"\nrounds = 2\ndamping = 0.5\nupdate = \"dp-optimisation\"\nmeasured = false", "epsilon = 1.0", 2)
}

/// `forget`: what was paid for and has not left stays here, and the same run is not charged again.
#[test]
fn a_run_that_was_given_up_gets_nothing_more_from_this_site() {
    let task = private(|_| {});
    let (mut desk, disk, mut one, start) = asked(&task);
    let kept = train(&mut one, &start, [0.1, 0.2, -1.0, -2.0]);
    drop(one);
    let mut books = ledger("a", &disk, budget()).unwrap();
    let before = books.losses().joint.epsilon.get();
    books.give_up(&kept.release.run).unwrap();
    assert!(books.state(&kept.release) == Some(ReleaseState::Settled { included: false }) && books.losses().joint.epsilon.get() < before);
    let (rows, spent) = (books.rows().len(), books.losses().joint.epsilon.get());
    drop(books);
    let mut again = site("a", &disk);
    welcome(&mut again, &mut desk).unwrap();
    assert!(matches!(again.on_next(next(&next_round(&start, Vec::new(), |_| {}))), Err(SiteError::GivenUp(_))));
    assert_eq!((again.ledger().rows().len(), again.ledger().losses().joint.epsilon.get()), (rows, spent));
}
