//! Costs of secure aggregation.
fn main() {
    divan::main();
}
