// The jobs that the examples in the crate's documentation talk about.
use pipeline::{Context, Job, JobError, Perform};
use pipeline::*;
use serde::{Deserialize, Serialize};

macro_rules! data {
    ($($name:ident)*) => {
        $(#[derive(Debug, Clone, Serialize, Deserialize)] pub struct $name;)*
    };
}

macro_rules! jobs {
    ($($name:ident: $input:ty => $output:ty;)*) => {
        $(#[derive(Debug, Clone, Serialize, Deserialize, Job)]
        pub struct $name;

        impl Perform for $name {
            type Input = $input;
            type Output = $output;
            async fn perform(self, _: $input, _: &Context) -> Result<$output, JobError> {
                Err("only an example".into())
            }
        })*
    };
}

data!(Source Encoded Thumb Published);

jobs! {
    Download: () => Source;
    Transcode: Source => Encoded;
    Thumbnail: Source => Thumb;
    Publish: (Encoded, Option<Thumb>) => Published;
    PublishAll: Vec<Encoded> => Published;
    Cleanup: () => ();
    Announce: Published => ();
    Alert: RunEnded => ();
    Apologise: Failure => ();
    Compare: (Encoded, Result<Thumb, Failure>) => ();
    Probe: Source => Format;
    Upscale: Source => Encoded;
    Shrink: Source => Encoded;
    Store: Encoded => ();
    StoreIfAny: Option<Encoded> => ();
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, Branch)]
pub enum Format {
    Hd,
    Sd,
}
