//! Which URIs a resource template covers.
//!
//! Of RFC 6570 the forms that templates of resources use: `{name}` matches
//! within a path segment; `{+name}`, `{/name}`, `{#name}` and `{name*}` also
//! across them. Matching goes from left to right without going back, so that
//! its cost is bounded by the length of the URI.

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
        let mut variables = BTreeMap::new();
        let mut rest = uri;
        for (at, part) in self.0.iter().enumerate() {
            match part {
                Part::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Part::Variable { name, wide } => {
                    let end = match self.0.get(at + 1) {
                        None => rest.len(),
                        Some(Part::Literal(next)) if at + 2 == self.0.len() => {
                            rest.strip_suffix(next.as_str())?.len()
                        }
                        Some(Part::Literal(next)) => rest.find(next.as_str())?,
                        Some(Part::Variable { .. }) => rest.len(),
                    };
                    let (value, behind) = rest.split_at(end);
                    if value.is_empty() || (!wide && value.contains(['/', '?', '#'])) {
                        return None;
                    }
                    variables.insert(name.clone(), decode(value));
                    rest = behind;
                }
            }
        }
        rest.is_empty().then_some(variables)
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
    fn broken_templates_are_refused() {
        for broken in ["a://{", "a://{}", "a://}{x", "a://{a,,b}"] {
            assert!(Template::parse(broken).is_err(), "{broken}");
        }
    }
}
