//! Messages of the compiler about mistakes: each text names the remedy.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
