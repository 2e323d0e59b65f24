//! What a failed statement means: the one list of SQLSTATE codes.

/// The SQLSTATE by which our own functions say that a row they need is locked by another transaction. The
/// error's DETAIL lists the ids of the rows whose changes must wait, separated by commas.
pub const ROW_HELD: &str = "PB001";

/// What a failed statement means for the work it was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The data is at fault: without it, the rest of the work succeeds.
    Data,
    /// Another transaction was in the way: the same work succeeds later.
    Conflict,
    /// The statement took longer than it may: less work, or more time.
    TooLong,
    /// The connection or the server failed: the same work succeeds once they are back.
    Server,
}

impl ErrorClass {
    /// Classifies an error. SQLSTATE classes 22, 23 and 54 and our own raises are the data's fault; a
    /// time-out never is.
    pub fn of(error: &sqlx::Error) -> Self {
        let Some(code) = error.as_database_error().and_then(|error| error.code()) else {
            return match error {
                sqlx::Error::Encode(_)
                | sqlx::Error::Decode(_)
                | sqlx::Error::ColumnDecode { .. } => Self::Data,
                _ => Self::Server,
            };
        };
        match code.as_ref() {
            "40001" | "40P01" | "55P03" | ROW_HELD => Self::Conflict,
            "57014" => Self::TooLong,
            "P0001" => Self::Data,
            code if ["22", "23", "54"]
                .iter()
                .any(|class| code.starts_with(class)) =>
            {
                Self::Data
            }
            _ => Self::Server,
        }
    }

    /// Returns whether the error says that the server cannot be reached, or takes no connection.
    pub fn is_unreachable(error: &sqlx::Error) -> bool {
        let Some(code) = error.as_database_error().and_then(|error| error.code()) else {
            return Self::of(error) == Self::Server;
        };
        code.starts_with("08")
            || code.starts_with("57P")
            || code == "53300"
            || code.starts_with("28")
    }

    /// Returns whether the server broke the connection off, or never answered: nothing is known about what
    /// was sent.
    pub fn is_disconnect(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Io(_) => true,
            sqlx::Error::Database(error) => {
                matches!(error.code().as_deref(), Some("57P01" | "57P02" | "57P03"))
            }
            _ => false,
        }
    }
}

/// Returns the text of an error: of one that the server reported, its message and its SQLSTATE. The error's own
/// text ends with a line number of the server's source instead.
pub fn error_text(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            format!("{} (SQLSTATE {code})", error.message())
        }
        error => error.to_string(),
    }
}

/// Returns the ids of the rows that one of our own functions found locked.
pub(crate) fn held_rows(error: &sqlx::Error) -> Option<Vec<i64>> {
    let error = error.as_database_error()?;
    if error.code().as_deref() != Some(ROW_HELD) {
        return None;
    }
    let error = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    let ids = error.detail().unwrap_or_default().split(',');
    Some(ids.filter_map(|id| id.trim().parse().ok()).collect())
}
