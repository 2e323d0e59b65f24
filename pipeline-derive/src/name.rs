//! The stored names of jobs and queues.

/// The rule for names, for error messages.
pub(crate) const RULE: &str =
    "a name has from 1 to 128 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`";

/// Returns whether a name follows the [`RULE`].
pub(crate) fn is_valid(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Converts the name of a type to snake case: a word begins at a capital after anything but a capital, and at the last
/// of several capitals if a small letter follows.
///
/// Databases of applications hold these names: after a change of the rule, their jobs would not be found.
pub(crate) fn snake_case(type_name: &str) -> String {
    let mut snake = String::with_capacity(type_name.len() + 4);
    let mut before = None;
    let mut chars = type_name.chars().peekable();
    while let Some(c) = chars.next() {
        let begins_word = c.is_uppercase()
            && match before {
                None | Some('_') => false,
                Some(b) if b.is_uppercase() => chars.peek().is_some_and(|next| next.is_lowercase()),
                Some(_) => true,
            };
        if begins_word {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
        before = Some(c);
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_128_plain_characters() {
        for good in ["a", "media.transcode-v2_X", "0", &"n".repeat(128)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "a b", "a/b", "größe", "a\0", "a\n", &"n".repeat(129)] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn a_types_name_becomes_snake_case() {
        for (type_name, snake) in [
            ("Transcode", "transcode"),
            ("SendWelcomeMail", "send_welcome_mail"),
            ("HTTPFetch", "http_fetch"),
            ("FetchHTTP", "fetch_http"),
            ("S3Upload", "s3_upload"),
            ("MP4ToHLS", "mp4_to_hls"),
            ("Step2", "step2"),
            ("A", "a"),
            ("AB", "ab"),
            ("Old_Name", "old_name"),
            ("_Hidden", "_hidden"),
            ("already_snake", "already_snake"),
        ] {
            assert_eq!(snake_case(type_name), snake);
        }
    }
}
