//! Steps that do not fit together do not compile, and the compiler's message says why.

#[test]
fn steps_that_do_not_fit_together_do_not_compile() {
    trybuild::TestCases::new().compile_fail("ui/graphs/*.rs");
}
