//! Live progress: redrawn in place on a terminal, line by line elsewhere.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use jobs::{Job as _, JobInfo, JobStatus};
use shop::PublishGallery;

use crate::Result;
use crate::snapshot::{Group, Snapshot};

/// Where the demo writes. What it changes about the terminal is undone when it goes.
pub(crate) struct Screen {
    live: bool,
    colour: bool,
    /// When there was first something to show.
    began: Option<Instant>,
    /// How many lines are to be drawn over.
    drawn: usize,
    /// What was last said of each type of job.
    said: HashMap<String, (JobKey, usize)>,
}

/// What must change for a line to be worth saying.
type JobKey = Option<(JobStatus, i16)>;

impl Screen {
    pub(crate) fn new() -> Self {
        let plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let live = io::stdout().is_terminal() && !plain;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Self {
            live,
            colour: live && !no_colour,
            began: None,
            drawn: 0,
            said: HashMap::new(),
        }
    }

    /// Writes a line, or several.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Shows where everything stands.
    pub(crate) fn show(&mut self, snapshot: &Snapshot) -> Result<()> {
        if self.live {
            self.redraw(snapshot)
        } else {
            self.say_what_is_new(snapshot)
        }
    }

    /// The last drawing stays; the terminal is as it was.
    pub(crate) fn rest(&mut self) {
        if self.drawn > 0 {
            self.drawn = 0;
            let mut out = io::stdout().lock();
            let _ = write!(out, "\x1b[?25h\x1b[?7h");
            let _ = out.flush();
        }
    }

    fn redraw(&mut self, snapshot: &Snapshot) -> Result<()> {
        use std::fmt::Write as _;
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn);
        } else {
            // No cursor; and long lines are cut, not wrapped: a wrapped one would be two to go up.
            text.push_str("\x1b[?25l\x1b[?7l");
        }
        let mut queue = "";
        for group in &snapshot.groups {
            let shown = if group.queue == queue {
                ""
            } else {
                &group.queue
            };
            queue = &group.queue;
            let dots: String = group.jobs.iter().map(|job| self.dot(job)).collect();
            let _ = writeln!(
                text,
                "  {shown:<14}  {:<15}  {dots}  {}\x1b[K",
                group.kind,
                snapshot.words(group)
            );
        }
        let mut lines = snapshot.groups.len();
        if !snapshot.has_callback() {
            let state = &snapshot.batch;
            let (queue, kind) = (PublishGallery::OPTIONS.queue, PublishGallery::NAME);
            let _ = writeln!(
                text,
                "  {queue:<14}  {kind:<15}  {}  comes with the last thumbnail: {} of {} ended\x1b[K",
                self.paint("2", "·"),
                state.ended,
                state.total,
            );
            lines += 1;
        }
        self.drawn = lines;
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    fn dot(&self, job: &JobInfo) -> String {
        match job.status {
            JobStatus::Succeeded => self.paint("32", "●"),
            JobStatus::Running => self.paint("33", "◐"),
            JobStatus::Failed | JobStatus::Discarded => self.paint("31", "✗"),
            JobStatus::Later if job.attempt > 0 => self.paint("31", "○"),
            _ => self.paint("2", "○"),
        }
    }

    /// Text in a colour, if there are any.
    pub(crate) fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn say_what_is_new(&mut self, snapshot: &Snapshot) -> Result<()> {
        let at = self.began.get_or_insert_with(Instant::now).elapsed();
        let at = at.as_secs_f32();
        for group in &snapshot.groups {
            let now = (key(group), group.ended());
            if self.said.get(&group.kind) != Some(&now) {
                self.said.insert(group.kind.clone(), now);
                let words = snapshot.words(group);
                self.line(&format!(
                    "  {at:>4.1} s  {:<14}  {:<15}  {words}",
                    group.queue, group.kind
                ))?;
            }
        }
        Ok(())
    }
}

/// Many of a kind are counted; one on its own is followed.
fn key(group: &Group) -> JobKey {
    match group.jobs.as_slice() {
        [job] => Some((job.status, job.attempt)),
        _ => None,
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.rest();
    }
}
