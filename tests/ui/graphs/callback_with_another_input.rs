// A callback is told of a run; this job takes a `Source`.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        p.step("download", Download);
        p.on_failure(Transcode);
    });
}
