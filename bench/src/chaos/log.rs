//! What the workers write down around `perform`.
//!
//! A file for each process, a line for each moment, each line by one unbuffered `write` to the file's
//! end: a line that was written is there, whatever happens to the process after it.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use jobs::Context;

use crate::frame::Result;

/// Around `perform`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Begin,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) moment: Moment,
    pub(super) job: i64,
    pub(super) token: i64,
    pub(super) attempt: i64,
    pub(super) pid: i64,
    /// In microseconds since 1970, by the clock that Postgres here reads as well.
    pub(super) at: i64,
}

#[derive(Debug)]
pub(super) struct Log(File);

impl Log {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self(File::options().create(true).append(true).open(path)?))
    }

    pub(super) fn write(&self, moment: Moment, cx: &Context) -> std::io::Result<()> {
        let moment = match moment {
            Moment::Begin => "begin",
            Moment::End => "end",
        };
        let line = format!(
            "{moment} {} {} {} {} {}\n",
            cx.id(),
            cx.token(),
            cx.attempt(),
            std::process::id(),
            now()
        );
        (&self.0).write_all(line.as_bytes())
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| {
        i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
    })
}

pub(super) fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    // What a kill cut off was not written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse).collect()
}

fn parse(line: &str) -> Result<Line> {
    let (moment, numbers) = line.split_once(' ').ok_or("an empty line in a log")?;
    let numbers: Vec<i64> = numbers
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let moment = match moment {
        "begin" => Moment::Begin,
        "end" => Moment::End,
        other => return Err(format!("`{other}` in a log").into()),
    };
    let [job, token, attempt, pid, at] = numbers[..] else {
        return Err(format!("a log line that is none: `{line}`").into());
    };
    Ok(Line {
        moment,
        job,
        token,
        attempt,
        pid,
        at,
    })
}
