//! The id of a run, with a type of its own.

jobs::id_type! {
    /// Identifies a run.
    ///
    /// ```
    /// # use pipeline::RunId;
    /// let id: RunId = "7".parse()?;
    /// assert_eq!(id, RunId::from(7));
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
    RunId
}
