//! The `pipeline` command: to look at and steer what runs, from a terminal.
//!
//! It has no subcommand yet: they come with what they act on. `docs/status.md` says what is there.

use clap::Parser;

/// Look at and steer the job pipelines of a Postgres database.
#[derive(Parser)]
#[command(name = "pipeline", version, arg_required_else_help = true)]
struct Arguments {}

fn main() {
    Arguments::parse();
}
