// The deciding job returns no `Branch`.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download);
        source.branch("transcode", Transcode, FormatArms {
            hd: || {},
            sd: || {},
        });
    });
}
