//! Writes canonical JSON, in which equal values have equal texts.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Writes a JSON text in canonical form: sorted keys, no blanks, one escape for each character. Numbers keep their
/// text, because any other form could lose digits. The nesting of the text must be bounded.
pub(super) fn write(json: &str, into: &mut String) {
    let json = json.trim();
    match json.as_bytes().first() {
        Some(b'{') => {
            if let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(json) {
                into.push('{');
                for (at, (key, value)) in fields.into_iter().enumerate() {
                    if at > 0 {
                        into.push(',');
                    }
                    string(&key, into);
                    into.push(':');
                    write(value.get(), into);
                }
                into.push('}');
                return;
            }
        }
        Some(b'[') => {
            if let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(json) {
                into.push('[');
                for (at, element) in elements.into_iter().enumerate() {
                    if at > 0 {
                        into.push(',');
                    }
                    write(element.get(), into);
                }
                into.push(']');
                return;
            }
        }
        Some(b'"') => {
            if let Ok(text) = serde_json::from_str::<String>(json) {
                string(&text, into);
                return;
            }
        }
        _ => {}
    }
    // The text is a number or a literal. A text that is not JSON is copied, and differs from every JSON text.
    into.push_str(json);
}

/// Writes a string as JSON.
fn string(text: &str, into: &mut String) {
    into.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(json: &str) -> String {
        let mut form = String::new();
        write(json, &mut form);
        form
    }

    #[test]
    fn the_order_of_keys_and_the_way_of_writing_do_not_matter() {
        let one = form(r#" { "b" : [1, 2.50, {"y":null,"x":"\u00e9\/"}], "a": true } "#);
        assert_eq!(one, r#"{"a":true,"b":[1,2.50,{"x":"é/","y":null}]}"#);
        assert_eq!(one, form(r#"{"a":true,"b":[1,2.50,{"x":"é/","y":null}]}"#));
    }

    #[test]
    fn values_that_differ_have_different_forms() {
        let nested = |inner: &str, levels: usize| {
            format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels))
        };
        for (one, other) in [
            (
                "18446744073709551617".to_owned(),
                "18446744073709551618".to_owned(),
            ),
            (nested("1", 99), nested("2", 99)),
            (r#"["1"]"#.to_owned(), "[1]".to_owned()),
            (
                r#"{"a":"b,c"}"#.to_owned(),
                r#"{"a":"b","c":""}"#.to_owned(),
            ),
        ] {
            assert_ne!(form(&one), form(&other));
        }
    }
}
