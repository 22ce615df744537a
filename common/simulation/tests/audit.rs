//! The audit's short version: every row that a task may name, with few runs. `dp-pvi-sim audit` is the long one.
#![allow(clippy::unwrap_used)]

use dp_pvi_simulation::audit::{View, audit, cases, missing};

/// Every row that there is runs, and none is flagged. So few runs compare the integer sums of all worlds exactly, with state carried on, and prove no
/// rate; rates are counted by the test below, by that of the planted bugs, and by the command.
#[test]
fn no_claim_of_any_combination_is_refuted() {
    let cases = cases(None);
    assert_eq!(missing(&cases), Vec::<String>::new());
    // One vector of an aggregated sum is what a site sends under local trust, with other numbers.
    let cases: Vec<_> = cases.into_iter().filter(|case| case.view != View::Alone).collect();
    let rows = audit(&cases, 24, |_| ()).unwrap();
    let exact = rows.iter().filter(|row| row.bounds.as_ref().is_some_and(|bounds| bounds.sensitivity.is_some())).count();
    assert!(exact > rows.len() / 2, "{exact} of {}", rows.len());
    assert!(rows.len() > cases.len());
    for row in &rows {
        assert_eq!(row.flag, None, "{row}");
    }
}

/// Where the law is known, a bound reaches nine tenths of the claimed μ. Under replace-one the pair is near the supremum of all pairs, which is below the claim.
#[test]
fn bounds_are_tight_where_the_law_is_known() {
    let cases: Vec<_> = cases(Some("natural-gradient"))
        .into_iter()
        .filter(|case| case.model == "linear-regression" && case.view == View::Message)
        .collect();
    assert_eq!(cases.len(), 2);
    for row in audit(&cases, 3000, |_| ()).unwrap() {
        let (Some(claim), Some(bounds)) = (&row.claim, &row.bounds) else { continue };
        let (claimed, law) = (claim.mu.unwrap(), bounds.law.unwrap());
        // A bound is above the truth once in forty times. Five hundredths more would be five standard deviations.
        assert!(bounds.mu > 0.9 * claimed && bounds.mu < 1.05 * law, "{row}");
        let supremum = bounds.reachable.unwrap_or(claimed);
        assert!(law > 0.98 * supremum && law < supremum * (1.0 + 1e-9), "{row}");
        assert_eq!(row.flag, None);
    }
}
