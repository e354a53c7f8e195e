//! What the compiler refuses of generated code. `TRYBUILD=overwrite` writes the expected messages anew.

#[test]
fn generated_types_are_checked() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
