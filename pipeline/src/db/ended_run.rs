//! A run that has ended, as `pipeline.advance_v1` returns it.

use sqlx::postgres::{PgHasArrayType, PgTypeInfo};

/// A run that has ended: `pipeline.ended_run`.
#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "pipeline.ended_run", no_pg_array)]
pub(crate) struct EndedRunRow {
    pub(crate) id: i64,
    pub(crate) status: String,
    pub(crate) graph: i64,
}

impl PgHasArrayType for EndedRunRow {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("pipeline.ended_run")
    }
}
