#![allow(clippy::unwrap_used)]
use dp_pvi_names::ClientId;

use super::*;

fn receipts(count: u32) -> Vec<Receipt> {
    let run = RunId { task: Hash([3; 32]), number: 1 };
    let of = |i: u32| Receipt {
        release: ReleaseId { run, client: ClientId::new(format!("site-{i}")).unwrap(), round: 7 },
        update: Hash::of("u", &[&i.to_le_bytes()]),
        outcome: ReceiptOutcome::Stored,
        witnessed: None,
        reserved: Vec::new(),
    };
    (0..count).map(of).collect()
}

#[test]
fn bodies_that_were_signed_together_are_verified_alone() {
    let key = SigningKey::from_bytes(&[5; 32]);
    for count in [0, 1, 2, 3, 7, 8, 9, 64] {
        let bodies = receipts(count);
        let sealed = Signed::seal_all(&bodies, &key);
        assert_eq!(sealed.len(), bodies.len());
        for (sealed, body) in sealed.iter().zip(&bodies) {
            assert_eq!(&sealed.open(&key.verifying_key()).unwrap(), body);
            assert_eq!(sealed.hash(), Signed::seal(body, &key).hash(), "the name of a message does not depend on its signature");
        }
    }
    assert_eq!(Signed::seal_all(&receipts(1), &key)[0], Signed::seal(&receipts(1)[0], &key));
}

/// A body of another version, whose end is missing or more, is refused.
#[test]
fn a_body_that_is_cut_or_longer_is_malformed() {
    let key = SigningKey::from_bytes(&[5; 32]);
    let metrics = HeldOutMetrics { records: 3, log_likelihood: -0.5, auc: Some(0.75), pit: vec![1, 2], ..HeldOutMetrics::default() };
    let whole = encoded(&MetricsReport { run: RunId { task: Hash([3; 32]), number: 1 }, round: 2, metrics });
    let bodies = (0..whole.len()).map(|cut| whole[..cut].to_vec()).chain([[&whole[..], &[0]].concat()]);
    for body in bodies {
        let signature = key.sign(&Hash::of(MetricsReport::DOMAIN, &[&body]).0).to_bytes().to_vec();
        let message = Signed::<MetricsReport> { body, signature, kind: PhantomData };
        assert!(matches!(message.open(&key.verifying_key()), Err(InvalidMessage::Malformed)), "{}", message.body.len());
    }
}

#[test]
fn all_metrics_come_back_and_no_more_classes_than_a_model_has() {
    let key = SigningKey::from_bytes(&[5; 32]);
    let of = |classes: usize, bins: usize| MetricsReport {
        run: RunId { task: Hash([3; 32]), number: 1 },
        round: 2,
        metrics: HeldOutMetrics {
            records: 9,
            log_likelihood: -0.5,
            deviance: Some(1.25),
            ranked_probability_score: Some(0.5),
            confusion: vec![vec![2; classes]; classes],
            class_reliability: vec![vec![(0.1, 0.2, 3); bins]; classes],
            ..HeldOutMetrics::default()
        },
    };
    for (classes, bins) in [(3, 15), (100, 15)] {
        assert_eq!(Signed::seal(&of(classes, bins), &key).open(&key.verifying_key()).unwrap(), of(classes, bins));
    }
    let refused = |report: &MetricsReport| matches!(Signed::seal(report, &key).peek(), Err(InvalidMessage::Bounds(_)));
    assert!(refused(&of(101, 1)) && refused(&of(2, 1001)));
    let changed = |change: &dyn Fn(&mut HeldOutMetrics)| {
        let mut report = of(3, 2);
        change(&mut report.metrics);
        refused(&report)
    };
    assert!(changed(&|metrics| metrics.confusion[1] = vec![1; 2]));
    assert!(changed(&|metrics| metrics.confusion[1][0] = u64::MAX));
    assert!(changed(&|metrics| metrics.class_reliability[1][0].0 = f64::NAN));
    assert!(changed(&|metrics| metrics.class_reliability[1][0].2 = u64::MAX));
}

#[test]
fn no_other_body_no_other_way_and_no_other_key_fit() {
    let key = SigningKey::from_bytes(&[5; 32]);
    let sealed = Signed::seal_all(&receipts(5), &key);
    let good = &sealed[2];
    assert!(good.open(&SigningKey::from_bytes(&[6; 32]).verifying_key()).is_err());
    for other in [&sealed[1], &sealed[3]] {
        let moved = Signed::<Receipt>::from_parts(good.body.clone(), other.signature.clone());
        assert_eq!(moved.open(&key.verifying_key()).unwrap_err(), InvalidMessage::Signature);
    }
    for at in 0..good.signature.len() {
        let mut changed = good.clone();
        changed.signature[at] ^= 1;
        assert!(changed.open(&key.verifying_key()).is_err(), "byte {at} of the signature");
        let cut = Signed::<Receipt>::from_parts(good.body.clone(), good.signature[..at].to_vec());
        assert!(cut.open(&key.verifying_key()).is_err(), "{at} bytes of the signature");
    }
    // An inner node is no leaf: a tree cannot be read at another depth.
    let deeper = [&good.signature[..], &[0; 32]].concat();
    assert!(Signed::<Receipt>::from_parts(good.body.clone(), deeper).open(&key.verifying_key()).is_err());
}

/// What is signed alone is not accepted with a way, even if its signer made one.
#[test]
fn only_receipts_are_signed_together() {
    let key = SigningKey::from_bytes(&[5; 32]);
    let run = RunId { task: Hash([3; 32]), number: 1 };
    let refusal = |round| Refusal {
        release: ReleaseId { run, client: ClientId::new("a").unwrap(), round },
        header: Hash::default(),
        reason: RefusalReason::Policy,
    };
    let plain = Signed::seal(&refusal(0), &key);
    let leaves = [0, 1].map(|round| Signed::seal(&refusal(round), &key).hash());
    let tree = HashTree::new(leaves.to_vec());
    let signature = [&key.sign(&tree.signed(Refusal::DOMAIN).0).to_bytes()[..], &tree.way(0)].concat();
    let together = Signed::<Refusal>::from_parts(plain.body.clone(), signature);
    assert_eq!(together.open(&key.verifying_key()).unwrap_err(), InvalidMessage::Signature);
    assert!(plain.open(&key.verifying_key()).is_ok());
}
