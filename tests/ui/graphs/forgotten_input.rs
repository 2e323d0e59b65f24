// A step that takes a `Source`, and nothing stands before it.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        p.step("transcode", Transcode);
    });
}
