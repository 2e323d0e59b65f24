//! Ids of jobs and batches, each with a type of its own.

/// Declares an id type: a number that serde, sqlx and [`Display`](std::fmt::Display) show as it is.
#[doc(hidden)]
#[macro_export]
macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
            sqlx::Type,
        )]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Returns the id as the number that the database stores.
            pub const fn get(self) -> i64 {
                self.0
            }
        }

        impl From<i64> for $name {
            fn from(id: i64) -> Self {
                Self(id)
            }
        }

        impl From<$name> for i64 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id_type! {
    /// Identifies a job.
    ///
    /// ```
    /// # use jobs::JobId;
    /// let id: JobId = "7".parse()?;
    /// assert_eq!(id, JobId::from(7));
    /// assert_eq!(id.to_string(), "7");
    /// assert_eq!(i64::from(id), 7);
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
    JobId
}

id_type! {
    /// Identifies a batch.
    BatchId
}
