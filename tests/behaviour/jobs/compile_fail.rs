//! Mistakes that must not compile, with the compiler's messages. `TRYBUILD=overwrite` writes the current messages
//! to `tests/ui`.

#[test]
fn a_mistake_in_a_jobs_attributes_is_shown_where_it_is() {
    trybuild::TestCases::new().compile_fail("ui/derive_job/*.rs");
}

#[test]
fn a_job_is_only_used_where_its_input_comes_from() {
    trybuild::TestCases::new().compile_fail("ui/jobs/*.rs");
}
