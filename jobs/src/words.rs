//! Words of the database, as enums.

/// An enum, each variant of which has a word.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
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
            /// Every one there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name, as the database has it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownWord> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::UnknownWord::new($what, text, &[$($text),*])),
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

/// A text that is none of the words there are.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: use one of {}", .known.join(", "))]
pub struct UnknownWord {
    what: &'static str,
    text: String,
    known: &'static [&'static str],
}

crate::debug_as_display!(UnknownWord);

impl UnknownWord {
    #[doc(hidden)]
    pub fn new(what: &'static str, text: &str, known: &'static [&'static str]) -> Self {
        Self {
            what,
            text: crate::limits::shortened(text),
            known,
        }
    }
}

impl From<UnknownWord> for sqlx::Error {
    fn from(error: UnknownWord) -> Self {
        Self::Decode(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use crate::JobStatus;

    #[test]
    fn a_word_is_the_same_in_the_database_and_in_json() {
        for status in JobStatus::ALL {
            assert_eq!(status.to_string().parse().as_ref(), Ok(status));
            let json = serde_json::to_string(status).unwrap_or_default();
            assert_eq!(json, format!("\"{status}\""));
        }
        let error = "lost".parse::<JobStatus>().map_err(sqlx::Error::from);
        let said = error.map_err(|error| error.to_string());
        let expected = "error occurred while decoding: `lost` is no status of a job: use one of scheduled, ready, \
                        running, succeeded, failed, discarded";
        assert_eq!(said, Err(expected.to_owned()));
    }
}
