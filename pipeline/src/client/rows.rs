//! The rows of a start, in the types that `pipeline.start_runs_v1` takes.

use std::borrow::Cow;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Encode, Postgres, Type};

use super::new_run::EventLevel;

/// The id of Postgres's type `json`, which never changes.
const JSON: PgTypeInfo = PgTypeInfo::with_oid(Oid(114));

/// A run to start: the type `pipeline.new_run`.
#[derive(Debug, Clone, Encode)]
pub(super) struct RunRow<'a> {
    pub(super) id: i64,
    pub(super) nonce: i64,
    pub(super) rerun_of: Option<i64>,
    pub(super) event_level: EventLevel,
    pub(super) key: Option<&'a str>,
    pub(super) params_hash: Option<Vec<u8>>,
    pub(super) actor: Option<&'a str>,
    pub(super) params: Option<Json<'a>>,
    pub(super) callbacks: Option<Json<'a>>,
    pub(super) tags: Option<&'a [String]>,
}

/// A step of a run to start: the type `pipeline.new_step`.
#[derive(Debug, Clone, Encode)]
pub(super) struct StepRow<'a> {
    pub(super) run: i64,
    /// The token of the first attempt, if the step is offered to a worker of this process.
    pub(super) token: Option<i64>,
    pub(super) no: i32,
    pub(super) waits: i32,
    pub(super) params: Option<Json<'a>>,
}

macro_rules! composite {
    ($($row:ident is $name:literal)*) => {
        $(impl Type<Postgres> for $row<'_> {
            fn type_info() -> PgTypeInfo {
                PgTypeInfo::with_name($name)
            }
        }

        impl PgHasArrayType for $row<'_> {
            fn array_type_info() -> PgTypeInfo {
                PgTypeInfo::array_of($name)
            }
        })*
    };
}

composite! {
    RunRow is "pipeline.new_run"
    StepRow is "pipeline.new_step"
}

/// Text that is stored as `json`, unchanged.
#[derive(Clone)]
pub(super) struct Json<'a>(pub(super) Cow<'a, str>);

impl<'a> From<&'a str> for Json<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl std::fmt::Debug for Json<'_> {
    /// Omits the data, which must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl Type<Postgres> for Json<'_> {
    fn type_info() -> PgTypeInfo {
        JSON
    }
}

impl Encode<'_, Postgres> for Json<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn size_hint(&self) -> usize {
        self.0.len()
    }
}
