// The second of two upstreams gives another type than the step takes there.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download);
        let encoded = source.then("transcode", Transcode);
        p.after((&encoded, &source)).step("publish", Publish);
    });
}
