//! Live progress: redrawn in place on a terminal, and written line by line elsewhere.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

use crate::Result;

/// The output of the demo. Changes to the terminal are undone when it is dropped.
pub(crate) struct Screen {
    live: bool,
    colour: bool,
    began: Instant,
    /// The number of lines that the next drawing replaces.
    drawn: usize,
    /// The last text that was written for each subject.
    said: HashMap<String, String>,
}

/// One line of a drawing.
pub(crate) struct Line {
    /// The subject of the line.
    pub(crate) of: String,
    /// The text for a terminal.
    pub(crate) drawn: String,
    /// The text for other outputs; an empty text is not written.
    pub(crate) said: String,
    /// The value that must change before the line is written again; by default the text itself.
    pub(crate) news: Option<String>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let live = io::stdout().is_terminal() && !plain;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        Self {
            live,
            colour: live && !no_colour,
            began: Instant::now(),
            drawn: 0,
            said: HashMap::new(),
        }
    }

    /// Writes one or more lines.
    pub(crate) fn line(&mut self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Starts a part of the demo with its title and an introduction.
    pub(crate) fn act(&mut self, title: &str, words: &str) -> Result<()> {
        self.rest();
        self.said.clear();
        self.began = Instant::now();
        let title = self.paint("1", title);
        self.line(&format!("\n{title}\n{words}\n"))
    }

    /// Shows a drawing: in place of the last one on a terminal, and only changed lines elsewhere.
    pub(crate) fn show(&mut self, picture: Vec<Line>) -> Result<()> {
        if self.live {
            self.redraw(&picture)
        } else {
            self.say_what_is_new(picture)
        }
    }

    /// Keeps the last drawing, and restores the settings of the terminal.
    pub(crate) fn rest(&mut self) {
        if self.drawn > 0 {
            self.drawn = 0;
            let mut out = io::stdout().lock();
            let _ = write!(out, "\x1b[?25h\x1b[?7h");
            let _ = out.flush();
        }
    }

    /// Returns the text in a colour, if the output has colours.
    pub(crate) fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn redraw(&mut self, picture: &[Line]) -> Result<()> {
        use std::fmt::Write as _;
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn);
        } else {
            // Hide the cursor, and cut long lines: a wrapped line would count as two lines on the way up.
            text.push_str("\x1b[?25l\x1b[?7l");
        }
        for line in picture {
            let _ = writeln!(text, "  {}\x1b[K", line.drawn);
        }
        self.drawn = picture.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    fn say_what_is_new(&mut self, picture: Vec<Line>) -> Result<()> {
        let at = self.began.elapsed().as_secs_f32();
        for line in picture.into_iter().filter(|line| !line.said.is_empty()) {
            let news = line.news.unwrap_or_else(|| line.said.clone());
            if self.said.get(&line.of) != Some(&news) {
                self.said.insert(line.of, news);
                self.line(&format!("  {at:>4.1} s  {}", line.said))?;
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.rest();
    }
}
