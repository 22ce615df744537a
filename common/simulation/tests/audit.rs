//! The audit's short version: every row that a task may name, with few runs. `dp-pvi-sim audit` is the long one.
#![allow(clippy::unwrap_used)]

use dp_pvi_simulation::audit::{audit, cases, missing};

/// The shipped code keeps what it claims, in every row, and the rows are all that there are.
#[test]
fn no_claim_of_any_combination_is_refuted() {
    let cases = cases(None);
    assert_eq!(missing(&cases), Vec::<String>::new());
    let rows = audit(&cases, 40, |_| ()).unwrap();
    assert!(rows.len() > cases.len());
    for row in &rows {
        assert_eq!(row.flag, None, "{row}");
    }
}

/// Where the law is known, a bound reaches nine tenths of this pair's μ, and of the claimed one where the pair attains the sensitivity.
#[test]
fn bounds_are_tight_where_the_law_is_known() {
    let cases: Vec<_> = cases(Some("natural-gradient"))
        .into_iter()
        .filter(|case| case.model == "linear-regression" && case.task.aggregation.is_none())
        .collect();
    assert_eq!(cases.len(), 2);
    for row in audit(&cases, 6000, |_| ()).unwrap() {
        let (Some(claim), Some(bounds)) = (&row.claim, &row.bounds) else { continue };
        let (claimed, law) = (claim.mu.unwrap(), bounds.law.unwrap());
        assert!(bounds.mu > 0.9 * law && bounds.mu <= claimed, "{row}");
        assert!(law > 0.7 * claimed, "{row}");
        assert_eq!(row.flag, None);
    }
}
