//! The steps of the video pipeline of the demo. Some of them fail.

use std::time::Duration;

use pipeline::prelude::*;
use serde::{Deserialize, Serialize};

/// The file of a video, as it was uploaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Source {
    /// The name of the file.
    pub file: String,
}

/// The file of a video, as it is published.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Encoded {
    /// The name of the file.
    pub file: String,
}

/// A picture of a video.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Thumb {
    /// The name of the file.
    pub file: String,
}

/// Downloads a video.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "studio.download")]
pub struct Download {
    /// The number of the video.
    pub video: u64,
}

impl Perform for Download {
    type Input = ();
    type Output = Source;

    async fn perform(self, (): (), _: &Context) -> Result<Source, JobError> {
        work(500).await;
        let file = format!("{}.mkv", self.video);
        Ok(Source { file })
    }
}

/// Encodes a video in a format. The format `hd` needs two attempts.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "studio.transcode", max_attempts = 3, backoff = "fixed(700ms)")]
pub struct Transcode {
    /// The name of the format.
    pub preset: String,
}

impl Transcode {
    /// Creates the job for a format.
    pub fn to(preset: &str) -> Self {
        let preset = preset.to_owned();
        Self { preset }
    }
}

impl Perform for Transcode {
    type Input = Source;
    type Output = Encoded;

    async fn perform(self, source: Source, cx: &Context) -> Result<Encoded, JobError> {
        work(match self.preset.as_str() {
            "hd" => 900,
            "sd" => 700,
            _ => 400,
        })
        .await;
        if self.preset == "hd" && cx.attempt() == 1 {
            return Err(JobError::new("OutOfMemory", "the encoder was killed"));
        }
        let file = format!("{}.{}.mp4", source.file, self.preset);
        Ok(Encoded { file })
    }
}

/// Draws a picture of a video. It fails for every video.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "studio.thumbnail", max_attempts = 1)]
pub struct Thumbnail;

impl Perform for Thumbnail {
    type Input = Source;
    type Output = Thumb;

    async fn perform(self, _: Source, _: &Context) -> Result<Thumb, JobError> {
        work(300).await;
        Err(JobError::new("NoPicture", "every frame is black"))
    }
}

/// Publishes a video, with or without a picture.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "studio.publish")]
pub struct Publish;

impl Perform for Publish {
    type Input = (Vec<Encoded>, Option<Thumb>);
    type Output = String;

    async fn perform(
        self,
        (encoded, thumb): (Vec<Encoded>, Option<Thumb>),
        _: &Context,
    ) -> Result<String, JobError> {
        work(400).await;
        let picture = thumb.map_or("no picture".to_owned(), |it| it.file);
        Ok(format!("{} files and {picture}", encoded.len()))
    }
}

/// Takes some time, and passes no data.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "studio.task")]
pub struct Task {
    /// The duration in milliseconds.
    pub millis: u64,
}

impl Perform for Task {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        work(self.millis).await;
        Ok(())
    }
}

/// A callback that receives the end of a run.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "studio.tell", queue = "demo.callbacks")]
pub struct Tell {
    /// The receiver of the message.
    pub whom: String,
}

impl Perform for Tell {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, _: RunEnded, _: &Context) -> Result<(), JobError> {
        work(200).await;
        Ok(())
    }
}

/// Sleeps for this time, in place of real work.
pub async fn work(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
