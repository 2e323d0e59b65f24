//! Rows of the database's own types, as `pipeline.advance_v1` takes and returns them.

use jobs::extension::{AttemptEnd, Claimed, SlotOffer};
use sqlx::postgres::{PgHasArrayType, PgTypeInfo};

use super::input::{InputLimits, Row};

/// The free slots of one queue pattern: `pipeline.slot_offer`.
#[derive(Debug, sqlx::Encode)]
pub(super) struct OfferRow<'a> {
    pattern: &'a str,
    free: i32,
    min_priority: i16,
}

impl sqlx::Type<sqlx::Postgres> for OfferRow<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("pipeline.slot_offer")
    }
}

impl PgHasArrayType for OfferRow<'_> {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("pipeline.slot_offer")
    }
}

impl<'a> OfferRow<'a> {
    pub(super) fn of(offer: &'a SlotOffer) -> Vec<Self> {
        let row = |slots: &'a jobs::extension::OfferedSlots| Self {
            pattern: &slots.pattern,
            free: slots.free,
            min_priority: slots.min_priority,
        };
        offer.queues.iter().map(row).collect()
    }
}

/// A step that starts in this worker: `pipeline.started_step`.
#[derive(sqlx::Type)]
#[sqlx(type_name = "pipeline.started_step", no_pg_array)]
pub(super) struct StartedRow {
    id: i64,
    token: i64,
    kind: String,
    queue: String,
    priority: i16,
    attempts: i16,
    lease_ms: i32,
    place: Option<i32>,
    params: Option<String>,
    options: Option<String>,
    shape: Option<String>,
    takes: Option<Vec<Option<String>>>,
    outputs: Option<Vec<Option<String>>>,
    failed: Option<Vec<Option<String>>>,
    classes: Option<Vec<Option<String>>>,
    messages: Option<Vec<Option<String>>>,
    is_cancelled: Option<bool>,
    key: Option<String>,
    round: Option<i32>,
    size: Option<i64>,
}

impl PgHasArrayType for StartedRow {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("pipeline.started_step")
    }
}

impl std::fmt::Debug for StartedRow {
    /// Omits params and outputs, which must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartedRow")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl StartedRow {
    /// Returns the step as a claimed job. If its input is the output of one of these ends, the output is taken
    /// from there.
    pub(super) fn into_claimed(self, ends: &[&AttemptEnd], limits: InputLimits) -> Claimed {
        let mut job = Claimed::handed_over(self.id, self.token, self.kind, self.queue);
        job.priority = self.priority;
        job.max_attempts = self.attempts;
        job.lease_ms = self.lease_ms;
        let takes = self.takes.unwrap_or_default().into_iter().flatten();
        let mut row = Row {
            params: self.params,
            options: self.options,
            shape: self.shape,
            takes: Some(
                takes
                    .filter(|takes| takes != "order" && takes != "ended")
                    .collect(),
            ),
            outputs: self.outputs,
            failed: self.failed,
            classes: self.classes,
            messages: self.messages,
            cancelled: self.is_cancelled,
            key: self.key,
            round: self.round,
            size: self.size,
            put_off: None,
        };
        let place = self.place.and_then(|place| usize::try_from(place).ok());
        if let Some(end) = place.and_then(|place| ends.get(place)) {
            let output = end.output().map(|output| output.get().to_owned());
            let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            row.size = i64::try_from(length(&row.params) + length(&output)).ok();
            row.outputs = Some(vec![output]);
            row.round = end
                .owner_generation()
                .and_then(|round| i32::try_from(round).ok());
        }
        row.fill(&mut job, limits);
        job
    }
}
