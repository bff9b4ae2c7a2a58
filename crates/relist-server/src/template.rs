//! Which URIs a resource template covers.
//!
//! Of RFC 6570 the forms that templates of resources use: `{name}` matches
//! within a path segment; `{+name}`, `{#name}` and `{name*}` also across them.
//! Where several readings fit, the leftmost variables are the shortest. A table
//! of what covers the rest of the URI takes the place of going back, so that
//! the cost is bounded by the length of the URI times that of the template.

use std::collections::BTreeMap;

use crate::schema::DefinitionError;

/// The longest URI that is matched.
const MAX_URI: usize = 8 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable { name: String, wide: bool },
}

/// A template, ready to be matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, DefinitionError> {
        let fault = |reason: &str| DefinitionError::Template(format!("{reason} in {text:?}"));
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let Some(open) = rest.find('{') else {
                parts.push(Part::Literal(rest.to_owned()));
                break;
            };
            if open > 0 {
                parts.push(Part::Literal(rest[..open].to_owned()));
            }
            let close = rest.find('}').ok_or_else(|| fault("an open brace"))?;
            let inner = rest
                .get(open + 1..close)
                .ok_or_else(|| fault("a stray brace"))?;
            let (operator, names) = match inner.chars().next() {
                Some(c @ ('+' | '#' | '/' | '.' | ';' | '?' | '&')) => (Some(c), &inner[1..]),
                _ => (None, inner),
            };
            for (at, name) in names.split(',').enumerate() {
                let exploded = name.ends_with('*');
                let name = name.trim_end_matches('*');
                let name = name.split_once(':').map_or(name, |(name, _)| name);
                if name.is_empty() {
                    return Err(fault("an expression without a name"));
                }
                let prefix = match (operator, at) {
                    (None | Some('+' | '#'), 1..) => ",".to_owned(),
                    (None | Some('+'), _) => String::new(),
                    (Some('?'), 0) => format!("?{name}="),
                    (Some('?' | '&'), _) => format!("&{name}="),
                    (Some(';'), _) => format!(";{name}="),
                    (Some(c), _) => c.to_string(),
                };
                if !prefix.is_empty() {
                    parts.push(Part::Literal(prefix));
                }
                parts.push(Part::Variable {
                    name: name.to_owned(),
                    wide: exploded || matches!(operator, Some('+' | '#')),
                });
            }
            rest = &rest[close + 1..];
        }
        Ok(Self(parts))
    }

    /// The variables, if the template covers the URI.
    pub(crate) fn variables(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        if uri.len() > MAX_URI {
            return None;
        }
        if let Some(Part::Literal(first)) = self.0.first()
            && !uri.starts_with(first.as_str())
        {
            return None;
        }
        let covered = self.covered(uri)?;
        let mut variables = BTreeMap::new();
        let mut at = 0;
        for (part, behind) in self.0.iter().zip(&covered) {
            match part {
                Part::Literal(literal) => at += literal.len(),
                Part::Variable { name, .. } => {
                    let end = (at + 1..=uri.len()).find(|end| behind[*end])?;
                    variables.insert(name.clone(), decode(uri.get(at..end)?));
                    at = end;
                }
            }
        }
        Some(variables)
    }

    /// For each part, the positions of the URI from which what stands behind
    /// the part covers the rest; `None` when the whole does not cover the URI.
    fn covered(&self, uri: &str) -> Option<Vec<Vec<bool>>> {
        let bytes = uri.as_bytes();
        let mut behind = vec![false; bytes.len() + 1];
        behind[bytes.len()] = true;
        let mut table = Vec::with_capacity(self.0.len());
        for part in self.0.iter().rev() {
            let mut from = vec![false; bytes.len() + 1];
            match part {
                Part::Literal(literal) => {
                    for at in 0..=bytes.len().saturating_sub(literal.len()) {
                        from[at] = bytes[at..].starts_with(literal.as_bytes())
                            && behind[at + literal.len()];
                    }
                }
                Part::Variable { wide, .. } => {
                    let mut reaches = false;
                    for at in (0..bytes.len()).rev() {
                        reaches = (*wide || !matches!(bytes[at], b'/' | b'?' | b'#'))
                            && (reaches || behind[at + 1]);
                        from[at] = reaches && uri.is_char_boundary(at);
                    }
                }
            }
            table.push(behind);
            behind = from;
        }
        table.reverse();
        behind[0].then_some(table)
    }
}

/// Percent-decoding; what does not decode to UTF-8 stays as it is.
fn decode(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = (byte == b'%')
            .then(|| value.get(at + 1..at + 3))
            .flatten()
            .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        out.push(hex.unwrap_or(byte));
        at += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(template: &str, uri: &str) -> Option<Vec<(String, String)>> {
        let template = Template::parse(template).expect("a template");
        Some(template.variables(uri)?.into_iter().collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_plain_variable_stays_within_its_segment() {
        let template = "test://template/{id}/data";
        assert_eq!(
            matched(template, "test://template/123/data"),
            Some(vec![pair("id", "123")])
        );
        for other in [
            "test://template/1/2/data",
            "test://template//data",
            "test://template/1/data/",
            "test://other/1/data",
        ] {
            assert_eq!(matched(template, other), None, "{other}");
        }
    }

    #[test]
    fn wide_variables_cross_segments_and_values_are_decoded() {
        assert_eq!(
            matched("file:///{path*}", "file:///a/b%20c"),
            Some(vec![pair("path", "a/b c")])
        );
        assert_eq!(
            matched("repo://{owner}/{+path}", "repo://me/x/y"),
            Some(vec![pair("owner", "me"), pair("path", "x/y")])
        );
        assert_eq!(
            matched("s://q{?term}", "s://q?term=%C3%A9"),
            Some(vec![pair("term", "é")])
        );
    }

    #[test]
    fn every_reading_is_tried_and_the_leftmost_are_short() {
        let blob = "s://{+path}/at/{name}";
        assert_eq!(
            matched(blob, "s://a/at/b/at/c"),
            Some(vec![pair("name", "c"), pair("path", "a/at/b")])
        );
        assert_eq!(matched(blob, "s:///at/"), None);
        assert_eq!(
            matched("s://{a}-{b}", "s://1-2-3"),
            Some(vec![pair("a", "1"), pair("b", "2-3")])
        );
        assert_eq!(
            matched("s://{a}{b}", "s://\u{e9}x"),
            Some(vec![pair("a", "\u{e9}"), pair("b", "x")])
        );
        assert_eq!(matched("s://{a}.txt", "s://a"), None);
        let near_misses = format!("s://{}x", "/at/".repeat(MAX_URI / 4 - 2));
        assert_eq!(matched(&"{+a}/at/".repeat(40), &near_misses), None);
    }

    #[test]
    fn broken_templates_are_refused() {
        for broken in ["a://{", "a://{}", "a://}{x", "a://{a,,b}"] {
            assert!(Template::parse(broken).is_err(), "{broken}");
        }
    }
}
