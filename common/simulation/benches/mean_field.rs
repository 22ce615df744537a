//! Non-private variational inference on UCI Adult: 39,074 rows (the first 80 %) of 105 one-hot columns, at most 14 non-zero.
//!
//! `DP_PVI_SHARED=… cargo bench -p dp-pvi-simulation --bench mean_field`; without the data nothing is measured, and that is said. Prints the negative
//! evidence lower bound at the bench's tolerance and at 1e-12. Figures: `deploy/guide/src/results/speed.md`.
#![allow(clippy::unwrap_used, missing_docs, clippy::print_stdout)]

use std::path::PathBuf;
use std::sync::OnceLock;

use dp_pvi_data::{load_public, select_public};
use dp_pvi_inference::models::{Model, from_spec};
use dp_pvi_models::logistic_regression;
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_records::RecordTable;
use dp_pvi_schema::Schema;

/// Rows of the fit.
const ROWS: usize = 39_074;
/// Relative change at which a fit for a person may end.
const TOLERANCE: f64 = 1e-6;

fn main() {
    if let Some(table) = adult() {
        let bound = |tolerance| {
            let (model, prior) = (model(), prior(table));
            let q = model.local_optimum().unwrap().weighted_optimum(table, 1.0, tolerance, &prior, &prior).unwrap();
            let fit: f64 = table.records().map(|record| model.expected_log_likelihood(record, &q)).sum();
            q.kl(&prior) - fit
        };
        println!("negative evidence lower bound: {:.6} at {TOLERANCE:e}, {:.6} at 1e-12", bound(TOLERANCE), bound(1e-12));
        divan::main();
    } else {
        println!("adult: skipped, there is no data; set DP_PVI_SHARED");
    }
}

/// Optimum of the mean field by natural gradients.
#[divan::bench(args = [TOLERANCE, 1e-12], sample_count = 5)]
fn mean_field_optimum(bencher: divan::Bencher<'_, '_>, tolerance: f64) {
    let table = adult().unwrap();
    let (model, prior) = (model(), prior(table));
    bencher.bench(|| model.local_optimum().unwrap().weighted_optimum(table, 1.0, tolerance, &prior, &prior).unwrap());
}

fn model() -> Box<dyn Model> {
    from_spec(&ModelSpec::from(logistic_regression::LogisticRegression {})).expect("a model of this program")
}

fn prior(table: &RecordTable) -> dp_pvi_math::expfam::any::Gaussian {
    let family = dp_pvi_math::expfam::any::Family::DiagonalGaussian { dimension: table.dimension() };
    dp_pvi_math::expfam::any::Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap()
}

fn adult() -> Option<&'static RecordTable> {
    static TABLE: OnceLock<Option<RecordTable>> = OnceLock::new();
    let read = || {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let shared = std::env::var_os("DP_PVI_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
        let files = ["adult.data.gz", "adult.test.gz"].map(|file| shared.join("data/adult").join(file));
        let schema = std::fs::read_to_string(root.join("deploy/experiments/adult.schema.toml")).unwrap();
        let all = files
            .iter()
            .all(|file| file.is_file())
            .then(|| load_public(&Schema::asking("income ~ .", &schema).unwrap(), &files, None).unwrap())?;
        let rows: Vec<usize> = (0..ROWS).collect();
        Some(select_public(all.get().dimension(), &[(&all, &rows)]).into_inner())
    };
    TABLE.get_or_init(read).as_ref()
}
