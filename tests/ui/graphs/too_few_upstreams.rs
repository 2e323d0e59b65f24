// The step takes two values, and one stands before it.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let encoded = p.step("download", Download).then("transcode", Transcode);
        p.after(&encoded).step("publish", Publish);
    });
}
