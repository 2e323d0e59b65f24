// A strategy is set with a job, which is a callback of the pipeline.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        p.step("download", Download).failure_strategy(Download);
    });
}
