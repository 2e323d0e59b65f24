//! Videos: the steps of the pipelines that the guides talk about. Files are only names here.

use pipeline::prelude::*;
use serde::{Deserialize, Serialize};

/// A file as it was uploaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Source {
    /// Where it lies.
    pub file: String,
}

/// A file as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Encoded {
    /// Where it lies.
    pub file: String,
}

/// A picture of a video.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Thumb {
    /// Where it lies.
    pub file: String,
}

/// Where a video can be seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link(pub String);

/// What a file is good for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, Branch)]
pub enum Format {
    /// Large enough as it is.
    Hd,
    /// To be made larger.
    Sd,
}

/// Fetches a file.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 5, backoff = "exponential(1s..1m)")]
pub struct Download {
    /// The video.
    pub video: i64,
}

impl Perform for Download {
    type Input = ();
    type Output = Source;

    async fn perform(self, (): (), _cx: &Context) -> Result<Source, JobError> {
        let file = format!("{}.mkv", self.video);
        Ok(Source { file })
    }
}

/// Encodes a file.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, timeout = "10m")]
pub struct Transcode {
    /// How high the picture is to be.
    pub height: u32,
}

impl Perform for Transcode {
    type Input = Source;
    type Output = Encoded;

    async fn perform(self, source: Source, _cx: &Context) -> Result<Encoded, JobError> {
        let file = format!("{}.{}p.mp4", source.file, self.height);
        Ok(Encoded { file })
    }
}

/// Draws the picture of a file.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct DrawThumb;

impl Perform for DrawThumb {
    type Input = Source;
    type Output = Thumb;

    async fn perform(self, source: Source, _cx: &Context) -> Result<Thumb, JobError> {
        let file = format!("{}.jpg", source.file);
        Ok(Thumb { file })
    }
}

/// Looks at a file.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Probe;

impl Perform for Probe {
    type Input = Source;
    type Output = Format;

    async fn perform(self, source: Source, _cx: &Context) -> Result<Format, JobError> {
        let is_small = source.file.len() < 8;
        Ok(if is_small { Format::Sd } else { Format::Hd })
    }
}

/// Makes a file larger.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Upscale;

impl Perform for Upscale {
    type Input = Source;
    type Output = Encoded;

    async fn perform(self, source: Source, _cx: &Context) -> Result<Encoded, JobError> {
        let file = format!("{}.up.mp4", source.file);
        Ok(Encoded { file })
    }
}

/// Shows a video, with its picture if there is one.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Publish;

impl Perform for Publish {
    type Input = (Encoded, Option<Thumb>);
    type Output = Link;

    async fn perform(
        self,
        (encoded, thumb): (Encoded, Option<Thumb>),
        _cx: &Context,
    ) -> Result<Link, JobError> {
        let picture = thumb.map_or("none.jpg".to_owned(), |thumb| thumb.file);
        Ok(Link(format!("/{}?picture={picture}", encoded.file)))
    }
}

/// Shows a video in all its sizes.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct PublishAll;

impl Perform for PublishAll {
    type Input = Vec<Encoded>;
    type Output = Link;

    async fn perform(self, sizes: Vec<Encoded>, _cx: &Context) -> Result<Link, JobError> {
        let files: Vec<String> = sizes.into_iter().map(|size| size.file).collect();
        Ok(Link(format!("/{}", files.join("+"))))
    }
}

/// Shows a video as it was encoded.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct PublishPlain;

impl Perform for PublishPlain {
    type Input = Encoded;
    type Output = Link;

    async fn perform(self, encoded: Encoded, _cx: &Context) -> Result<Link, JobError> {
        Ok(Link(format!("/{}", encoded.file)))
    }
}

/// Shows a video if it was encoded.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct PublishIfAny;

impl Perform for PublishIfAny {
    type Input = Option<Encoded>;
    type Output = Option<Link>;

    async fn perform(
        self,
        encoded: Option<Encoded>,
        _cx: &Context,
    ) -> Result<Option<Link>, JobError> {
        Ok(encoded.map(|encoded| Link(format!("/{}", encoded.file))))
    }
}

/// Writes down what came of a picture.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Note;

impl Perform for Note {
    type Input = Result<Thumb, Failure>;
    type Output = ();

    async fn perform(self, thumb: Result<Thumb, Failure>, _cx: &Context) -> Result<(), JobError> {
        match thumb {
            Ok(thumb) => println!("{}", thumb.file),
            Err(failure) => println!("{}: {}", failure.class, failure.message),
        }
        Ok(())
    }
}

/// Throws away what is not needed any more.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Cleanup;

impl Perform for Cleanup {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _cx: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// Tells whoever uploaded a video what went wrong.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Apologise;

impl Perform for Apologise {
    type Input = Failure;
    type Output = ();

    async fn perform(self, failure: Failure, _cx: &Context) -> Result<(), JobError> {
        println!("sorry: {} said {}", failure.step, failure.message);
        Ok(())
    }
}

/// Tells a channel of a run that has ended: a callback.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
pub struct Alert {
    /// The channel.
    pub channel: String,
}

impl Perform for Alert {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, ended: RunEnded, _cx: &Context) -> Result<(), JobError> {
        println!("{}: run {} is {}", self.channel, ended.run, ended.status);
        Ok(())
    }
}
