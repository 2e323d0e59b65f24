//! Reading and writing graphs as JSON.

use super::compiled::Graph;
use super::invalid::Invalid;
use super::spec::GraphSpec;

/// The error of a text that is not a graph.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The text is not the JSON of a graph.
    #[error("not a graph: at `{path}`: {source}")]
    Json {
        /// The path of the value, such as `steps[3].after[0].takes`.
        path: String,
        /// The error of the decoder.
        source: serde_json::Error,
    },
    /// The graph is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

jobs::debug_as_display!(ReadError);

impl GraphSpec {
    /// Reads a graph without validating it.
    ///
    /// # Errors
    ///
    /// [`ReadError::Json`] says where the text is not the JSON of a graph.
    pub fn from_json(json: &str) -> Result<Self, ReadError> {
        let mut reader = serde_json::Deserializer::from_str(json);
        let spec =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| ReadError::Json {
                path: error.path().to_string(),
                source: error.into_inner(),
            })?;
        let at_the_end = |source| ReadError::Json {
            path: "the end".to_owned(),
            source,
        };
        reader.end().map_err(at_the_end)?;
        Ok(spec)
    }

    /// Writes the graph as JSON.
    pub fn to_json(&self) -> String {
        // A spec holds only text, numbers and lists, which JSON can always hold.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Graph {
    /// Reads a graph and compiles it.
    ///
    /// # Errors
    ///
    /// [`ReadError`] says where the text is not the JSON of a graph, or what is wrong with the graph.
    #[doc(hidden)]
    pub fn from_json(json: &str) -> Result<Self, ReadError> {
        Ok(Self::compile(GraphSpec::from_json(json)?)?)
    }

    /// Writes the declared graph as JSON.
    #[doc(hidden)]
    pub fn to_json(&self) -> String {
        self.spec().to_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        Graph::from_json(json).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn an_error_says_where_the_text_is_wrong() {
        let takes = r#"{"name":"p","steps":[{"key":"a","kind":{"type":"barrier"},
            "after":[{"step":"b","takes":"all"}]}]}"#;
        assert!(
            error(takes).contains("`steps[0].after[0].takes`"),
            "{}",
            error(takes)
        );
        assert!(error(takes).contains("unknown variant `all`"));
        let field = r#"{"name":"p","steps":[],"step":[]}"#;
        assert!(
            error(field).contains("unknown field `step`"),
            "{}",
            error(field)
        );
        let kind = r#"{"name":"p","steps":[{"key":"a","kind":{"type":"work"}}]}"#;
        assert!(
            error(kind).contains("`steps[0].kind.type`"),
            "{}",
            error(kind)
        );
        assert!(error(r#"{"name":"p","steps":[]} x"#).contains("`the end`"));
        assert!(error("").contains("EOF"));
    }

    #[test]
    fn a_graph_that_can_be_read_and_cannot_run_says_why() {
        assert!(error(r#"{"name":"p","steps":[]}"#).contains("no steps"));
    }

    #[test]
    fn graphs_too_deep_in_one_another_are_refused_and_not_a_crash() {
        let open = r#"{"name":"p","steps":[{"key":"a","kind":{"type":"child","graph":"#;
        let json = open.repeat(10_000);
        assert!(error(&json).contains("recursion limit"), "{}", error(&json));
    }
}
