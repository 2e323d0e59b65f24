//! The texts of errors: with their causes, without repetition, and without data.

use std::error::Error as StdError;
use std::fmt;

use sqlx::postgres::PgDatabaseError;

use crate::sqlstate;

/// How many names a message lists before it counts the rest.
const MAX_LISTED: usize = 12;

/// Displays names as a list: `` `a`, `b` and 3 more ``.
#[derive(Debug, Clone, Copy)]
pub struct List<'a>(pub &'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (at, name) in self.0.iter().take(MAX_LISTED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}`{name}`")?;
        }
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Returns the text of an error and of its causes. A cause whose text is already part of the text is left out: many
/// errors repeat their cause.
pub fn with_causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = text_of(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = text_of(cause);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Returns the text of one error. Errors of the server are written in one way, wherever they stand in a chain of
/// causes: sqlx writes them in two, and ends each with a line number of the server's source.
fn text_of(error: &(dyn StdError + 'static)) -> String {
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return sqlstate::error_text(error);
    }
    let boxed = error.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>();
    let server = boxed.and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    match server.or_else(|| error.downcast_ref()) {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    }
}

/// Returns the text of an error of sqlx, with a remedy where the cause can be known.
pub fn database_text(error: &sqlx::Error) -> String {
    let text = sqlstate::error_text(error);
    let remedy = match error {
        sqlx::Error::PoolTimedOut => {
            "Postgres cannot be reached, or all connections of the pool are in use: check the server, then the \
             pool's `max_connections`"
        }
        sqlx::Error::PoolClosed => "keep the pool open while clients and workers use it",
        sqlx::Error::Io(_) => "check that Postgres runs and can be reached",
        _ => return text,
    };
    format!("{text}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_each_and_counts_what_is_left_out() {
        let names =
            |count: usize| -> Vec<String> { (1..=count).map(|no| no.to_string()).collect() };
        assert_eq!(List(&names(0)).to_string(), "none");
        assert_eq!(List(&names(2)).to_string(), "`1`, `2`");
        let long = List(&names(MAX_LISTED + 3)).to_string();
        assert!(long.ends_with("`12` and 3 more"), "{long}");
    }

    #[test]
    fn a_cause_is_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot load the order")]
        struct Load(#[source] sqlx::Error);

        let broken = || std::io::Error::other("the line is dead");
        let text = with_causes(&Load(sqlx::Error::Io(broken())));
        assert_eq!(
            text,
            "cannot load the order: error communicating with database: the line is dead"
        );
        let error = crate::Error::Database(sqlx::Error::Io(broken()));
        assert_eq!(with_causes(&error), error.to_string());
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!(error.to_string().matches("the line is dead").count(), 1);
    }
}
