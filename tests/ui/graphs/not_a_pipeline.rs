// A job is chained where a run stands.
include!("jobs.in");

fn main() {
    let video = Pipeline::configure("video", |p| {
        p.step("download", Download);
    });
    let client = |client: pipeline::Client| async move {
        let _ = client.start(video.unwrap()).then(Download).await;
    };
}
