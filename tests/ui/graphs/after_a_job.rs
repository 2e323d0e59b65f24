// A job is named where the handle of a step is expected.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        p.step("download", Download);
        p.following(Download).step("download_again", Download);
    });
}
