//! Files of every kind, whole and damaged, as tables of records.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod conformance;
mod damaged_parquet;
mod distinct;
mod documents_and_images;
mod encodings;
mod formulas;
mod in_a_run;
mod other_sources;
mod parquet_files;
mod random_files;
mod shared_data;
mod spellings;
mod survival;
mod text_files;
