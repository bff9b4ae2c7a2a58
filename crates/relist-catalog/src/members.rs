//! The top-level members of an item, read without building a value.
//!
//! Member names are read as bytes: a name with a lone surrogate is no text, and
//! such an item is kept (its digest is opaque), not refused.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What the field that names an item holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyField {
    /// The field is not there.
    Missing,
    /// It is there, and not a string (or no text: a lone surrogate).
    NotText,
    /// It is there more than once.
    Repeated,
    /// A string.
    Text(String),
}

/// Finds one member of the object and skips all others.
pub(crate) fn key_field(text: &str, field: &str) -> serde_json::Result<KeyField> {
    let mut found = KeyField::Missing;
    each_member(
        text,
        |name| name == field.as_bytes(),
        |is_key, value: &RawValue| {
            if !is_key {
                return;
            }
            found = match (&found, serde_json::from_str(value.get())) {
                (KeyField::Missing, Ok(text)) => KeyField::Text(text),
                (KeyField::Missing, Err(_)) => KeyField::NotText,
                _ => KeyField::Repeated,
            };
        },
    )?;
    Ok(found)
}

/// All members in their order, repeated ones included.
pub(crate) fn members(text: &str) -> serde_json::Result<Vec<(String, &RawValue)>> {
    let mut all = Vec::new();
    each_member(
        text,
        |name| String::from_utf8_lossy(name).into_owned(),
        |name, value| all.push((name, value)),
    )?;
    Ok(all)
}

fn each_member<'de, N>(
    text: &'de str,
    name: impl Fn(&[u8]) -> N,
    member: impl FnMut(N, &'de RawValue),
) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(Members {
        name,
        member,
        of: PhantomData,
    })?;
    deserializer.end()
}

struct Members<F, M, N> {
    name: F,
    member: M,
    of: PhantomData<N>,
}

impl<'de, N, F, M> Visitor<'de> for Members<F, M, N>
where
    F: Fn(&[u8]) -> N,
    M: FnMut(N, &'de RawValue),
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name(&self.name, PhantomData))? {
            (self.member)(name, map.next_value()?);
        }
        Ok(())
    }
}

struct Name<'a, F, N>(&'a F, PhantomData<N>);

impl<'de, N, F: Fn(&[u8]) -> N> DeserializeSeed<'de> for Name<'_, F, N> {
    type Value = N;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<N, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<N, F: Fn(&[u8]) -> N> Visitor<'_> for Name<'_, F, N> {
    type Value = N;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<N, E> {
        Ok((self.0)(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_field_is_read() {
        let field = |text| key_field(text, "name").expect("an object");
        let text = |key: &str| KeyField::Text(key.to_owned());
        assert_eq!(field(r#"{"x":{"name":"b"},"name":"a"}"#), text("a"));
        assert_eq!(field(r#"{"n\u0061me":"\u00e9"}"#), text("é"));
        assert_eq!(field(r#"{"\ud83d":1,"x":1e400,"name":"a"}"#), text("a"));
        assert_eq!(field(r#"{"x":1,"x":2,"name":"a"}"#), text("a"));
        assert_eq!(field("{}"), KeyField::Missing);
        assert_eq!(field(r#"{"name":["a"]}"#), KeyField::NotText);
        assert_eq!(field(r#"{"name":"\ud83d"}"#), KeyField::NotText);
        assert_eq!(field(r#"{"name":"a","name":"b"}"#), KeyField::Repeated);
        assert!(key_field("[]", "name").is_err());
        assert!(key_field("{} {}", "name").is_err());
    }

    #[test]
    fn all_members_are_given_as_they_stand() {
        let all: Vec<(String, &str)> = members(r#"{"b":1.0,"a":[ ],"b":1e400}"#)
            .expect("an object")
            .into_iter()
            .map(|(name, value)| (name, value.get()))
            .collect();
        let expected = [("b", "1.0"), ("a", "[ ]"), ("b", "1e400")];
        assert_eq!(all, expected.map(|(n, v)| (n.to_owned(), v)));
    }
}
