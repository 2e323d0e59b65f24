//! A video on its way to the public: the jobs of the pipeline that the demo and the examples run.

use std::time::Duration;

use pipeline::RunEnded;
use pipeline::jobs::{Context, Job, JobError, Perform};
use serde::{Deserialize, Serialize};

/// What was downloaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Source {
    /// The video.
    pub video: u64,
    /// How long it is.
    pub minutes: u32,
}

/// What was made of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Encoded {
    /// In which format.
    pub preset: String,
    /// How large it is.
    pub megabytes: u32,
}

/// A picture of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Thumb {
    /// Where it lies.
    pub path: String,
}

/// Gets a video.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "video.download")]
pub struct Download {
    /// The video.
    pub video: u64,
}

impl Perform for Download {
    type Input = ();
    type Output = Source;

    async fn perform(self, (): (), _: &Context) -> Result<Source, JobError> {
        work(500).await;
        Ok(Source {
            video: self.video,
            minutes: 12,
        })
    }
}

/// Turns a video into a format. The encoder of `hd` needs a second try.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "video.transcode", attempts = 3, backoff = "fixed(700ms)")]
pub struct Transcode {
    /// The format.
    pub preset: String,
}

impl Transcode {
    /// To this format.
    pub fn to(preset: &str) -> Self {
        let preset = preset.to_owned();
        Self { preset }
    }
}

impl Perform for Transcode {
    type Input = Source;
    type Output = Encoded;

    async fn perform(self, source: Source, cx: &Context) -> Result<Encoded, JobError> {
        let (millis, rate) = match self.preset.as_str() {
            "hd" => (900, 60),
            "sd" => (700, 25),
            _ => (400, 8),
        };
        work(millis).await;
        if self.preset == "hd" && cx.attempt() == 1 {
            return Err(JobError::new("OutOfMemory", "the encoder was killed"));
        }
        Ok(Encoded {
            megabytes: source.minutes * rate,
            preset: self.preset,
        })
    }
}

/// Draws a picture of a video. There is none to be had of this one.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "video.thumbnail", attempts = 1)]
pub struct Thumbnail;

impl Perform for Thumbnail {
    type Input = Source;
    type Output = Thumb;

    async fn perform(self, _: Source, _: &Context) -> Result<Thumb, JobError> {
        work(300).await;
        Err(JobError::new("NoPicture", "every frame is black"))
    }
}

/// Opens a video to the public, with a picture or without.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "video.publish")]
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
        let presets: Vec<String> = encoded.into_iter().map(|it| it.preset).collect();
        let picture = thumb.map_or("no picture".to_owned(), |it| it.path);
        Ok(format!("{} with {picture}", presets.join(", ")))
    }
}

/// Anything that takes a while and comes after something.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "video.task")]
pub struct Task {
    /// How long.
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

/// A callback: is told how a run ended.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(name = "video.tell", queue = "demo.callbacks")]
pub struct Tell {
    /// Whom.
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

/// Takes time, or would.
pub async fn work(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
