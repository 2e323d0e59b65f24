//! The ids of steps: the id of a step's job holds the id of its run and the number of the step.

/// Returns the id of a step's job, which is also the id of its batch.
pub(crate) fn step_id(run: i64, no: u32) -> i64 {
    (run << 18) + 2 * i64::from(no)
}

/// Returns the run that a step's job belongs to.
pub(crate) fn run_of(job: i64) -> i64 {
    job >> 18
}

/// Returns the number of the step in its graph.
pub(crate) fn no_of(job: i64) -> u32 {
    u32::try_from((job & 0x3_FFFF) >> 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_id_that_its_run_and_its_place_give_it() {
        for (run, no) in [(1, 0), (1, 1), (7, 99_999), (1 << 40, 131_071)] {
            let id = step_id(run, no);
            assert_eq!((run_of(id), no_of(id), id % 2), (run, no, 0), "{run} {no}");
        }
    }
}
