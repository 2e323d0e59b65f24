// `Format` has two variants; one of them has no arm.
include!("jobs.in");

fn main() {
    let _ = Pipeline::configure("video", |p| {
        let source = p.step("download", Download);
        source.branch("probe", Probe, FormatArms {
            hd: || source.then("transcode", Transcode),
        });
    });
}
