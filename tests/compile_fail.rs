//! What the compiler refuses: the types of a request tree. `TRYBUILD=overwrite` writes the expected
//! messages anew.

#[test]
fn a_tree_of_two_types_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
