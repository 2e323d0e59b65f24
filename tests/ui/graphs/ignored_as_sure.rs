// An ignored step gives an `Option` or a `Result`; the step takes the value itself.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download).failure_strategy(Ignore);
        source.then("transcode", Transcode);
    });
}
