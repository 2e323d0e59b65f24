//! Reruns: new runs with the graph and the params of another run.

use std::time::Duration;

use super::Run;
use super::insert::MAX_ID_RETRIES;
use super::send::MAX_RESENDS;
use crate::db::is_transient;
use crate::{Error, Result};

/// Starts a new run with the graph and the params of another run.
pub(super) async fn rerun<O>(run: &Run<O>) -> Result<Run<O>> {
    let client = run.client();
    let nonce = fastrand::i64(..);
    let mut ids = Vec::new();
    let (mut resent, mut tries) = (0, 0);
    loop {
        let outcome = async {
            let mut connection = client.pool().acquire().await?;
            if ids.is_empty() {
                ids = client.id_cache().take_ids(&mut connection, 1).await?;
            }
            sqlx::query_file!("src/sql/rerun.sql", run.id().get(), ids[0], nonce)
                .fetch_optional(&mut *connection)
                .await
        };
        match outcome.await {
            Ok(None) => return Err(Error::NoRun(run.id())),
            Ok(Some(row)) if row.result == "started" => {
                return Ok(Run::new(client.clone(), row.id, true));
            }
            Ok(Some(_)) if tries == MAX_ID_RETRIES => return Err(Error::IdsTaken { tries }),
            Ok(Some(_)) => {
                client.id_cache().forget_ids();
                ids.clear();
                tries += 1;
            }
            Err(error) if is_transient(&error) => {
                client.forget_ids_if_lost(&error);
                if resent == MAX_RESENDS {
                    return Err(error.into());
                }
                tracing::debug!(%error, run.id = run.id().get(), "rerun failed; sending it again");
                resent += 1;
                tokio::time::sleep(Duration::from_millis(50 << resent)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
