// An optional step gives an `Option`; the step takes the value itself.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download);
        let encoded = source.then("transcode", Transcode);
        let thumbnail = source.then("thumbnail", Thumbnail).optional();
        p.after((&encoded, &thumbnail)).step("publish", Publish);
    });
}
