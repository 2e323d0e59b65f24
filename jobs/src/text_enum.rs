//! Enums whose variants are stored as texts.

/// Declares an enum, each variant of which has a text in the database and in JSON.
#[doc(hidden)]
#[macro_export]
macro_rules! text_enum {
    (
        $(#[$doc:meta])* $name:ident, $what:literal;
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),*
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the text of the variant, as the database stores it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownVariant;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownVariant> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::UnknownVariant::new($what, text, &[$($text),*])),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// The error of parsing a text that names no variant of an enum.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: use one of {}", .known.join(", "))]
pub struct UnknownVariant {
    what: &'static str,
    text: String,
    known: &'static [&'static str],
}

crate::debug_as_display!(UnknownVariant);

impl UnknownVariant {
    #[doc(hidden)]
    pub fn new(what: &'static str, text: &str, known: &'static [&'static str]) -> Self {
        Self {
            what,
            text: crate::limits::shortened(text),
            known,
        }
    }
}

impl From<UnknownVariant> for sqlx::Error {
    fn from(error: UnknownVariant) -> Self {
        Self::Decode(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use crate::JobStatus;

    #[test]
    fn a_variant_has_one_text_in_the_database_and_in_json() {
        for status in JobStatus::ALL {
            assert_eq!(status.to_string().parse().as_ref(), Ok(status));
            let json = serde_json::to_string(status).unwrap_or_default();
            assert_eq!(json, format!("\"{status}\""));
        }
        let error = "lost".parse::<JobStatus>().map_err(sqlx::Error::from);
        let said = error.map_err(|error| error.to_string());
        let expected = "error occurred while decoding: `lost` is not a status of a job: use one of scheduled, ready, \
                        running, succeeded, failed, discarded";
        assert_eq!(said, Err(expected.to_owned()));
    }
}
