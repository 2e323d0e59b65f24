//! Classes of database errors: the only list of SQLSTATE codes.

/// The SQLSTATE that the functions of the schema raise if another transaction holds a row that they need. The error's
/// DETAIL lists the ids of the rows whose changes must wait, separated by commas.
pub const ROW_HELD: &str = "PB001";

/// The class of a database error, which decides how the failed work is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The data is at fault: the rest of the work succeeds without that data.
    Data,
    /// Another transaction conflicted: the work succeeds when it is retried.
    Conflict,
    /// The statement exceeded its time limit: the work needs smaller statements, or more time.
    TooLong,
    /// The connection or the server failed: the work succeeds once the server can be reached.
    Server,
}

impl ErrorClass {
    /// Returns the class of an error. SQLSTATE classes 22, 23 and 54 and exceptions that the schema's functions raise
    /// are the fault of the data; a timeout never is.
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

    /// Returns whether the connection was lost before the answer arrived, so that the result of the statement is
    /// unknown.
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

/// Returns the text of an error. The text of an error from the server has the message and the SQLSTATE, because
/// sqlx's own text ends with a line number of the server's source instead.
pub fn error_text(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            format!("{} (SQLSTATE {code})", error.message())
        }
        error => error.to_string(),
    }
}

/// Returns the ids of the rows that a function of the schema found locked.
pub(crate) fn held_rows(error: &sqlx::Error) -> Option<Vec<i64>> {
    let error = error.as_database_error()?;
    if error.code().as_deref() != Some(ROW_HELD) {
        return None;
    }
    let error = error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    let ids = error.detail().unwrap_or_default().split(',');
    Some(ids.filter_map(|id| id.trim().parse().ok()).collect())
}
