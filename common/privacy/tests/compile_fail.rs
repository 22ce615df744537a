//! Every move that the release gate forbids, as programs (in `tests/compile_fail` of the workspace) that must not compile. Few
//! files, because each costs a run of the compiler: one per phase in which the compiler stops (names, types, private fields,
//! moves), since an earlier phase hides the later ones. It lives in this crate so that only this crate's few dependencies are
//! built again for it.

#[test]
fn forbidden_moves_do_not_compile() {
    trybuild::TestCases::new().compile_fail("../../tests/compile_fail/*.rs");
}
