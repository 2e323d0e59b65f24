// The arms return different types.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download);
        source.branch("probe", Probe, FormatArms {
            hd: || source.then("transcode", Transcode),
            sd: || source.then("thumbnail", Thumbnail),
        });
    });
}
