// What stands before gives an `Encoded`; the step takes a `Source`.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let encoded = p.step("download", Download).then("transcode", Transcode);
        encoded.then("thumbnail", Thumbnail);
    });
}
