// `following` gives order alone; the step takes a `Source`.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download);
        p.following(&source).step("transcode", Transcode);
    });
}
