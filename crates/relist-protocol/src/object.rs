//! JSON objects that are objects: serde reads a struct from an array as well,
//! field by field, and the protocol knows no such form.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// Reads a value from a JSON object and from nothing else; for
/// `#[serde(deserialize_with = "…")]` on a field whose type is a struct.
///
/// # Errors
///
/// When the value is no object, or not one of this type.
///
/// # Examples
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Argument { name: String }
/// #[derive(serde::Deserialize)]
/// struct Params {
///     #[serde(deserialize_with = "relist_protocol::object::read")]
///     argument: Argument,
/// }
/// let params: Params = serde_json::from_str(r#"{"argument": {"name": "a"}}"#)?;
/// assert_eq!(params.argument.name, "a");
/// assert!(serde_json::from_str::<Params>(r#"{"argument": ["a"]}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn read<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

/// [`read`] for a field that may be absent; `null` is not absent.
///
/// # Errors
///
/// When the value is no object, or not one of this type.
pub fn read_some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    read(deserializer).map(Some)
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
