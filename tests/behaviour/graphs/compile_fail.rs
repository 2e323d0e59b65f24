//! Steps that do not fit together do not compile, and the compiler says why in our own words.

#[test]
fn steps_that_do_not_fit_together_do_not_compile() {
    trybuild::TestCases::new().compile_fail("ui/graphs/*.rs");
}
