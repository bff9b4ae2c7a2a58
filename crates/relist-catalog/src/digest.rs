//! What an item's content hashes to, independent of how it is spelled.

use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::lossless::is_lossless;

/// The SHA-256 of an item's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Digest {
    /// Of the canonical form (RFC 8785), `_meta` included. Anybody can
    /// compute it from the item.
    Canonical([u8; 32]),
    /// Of the text as it was written, because canonical form would lose
    /// something (a number beyond a double, a lone surrogate, a repeated member)
    /// or cannot be had (a depth of more than 127).
    Opaque([u8; 32]),
}

/// Keeps the hash of a text apart from the hash of a canonical form.
const OPAQUE_DOMAIN: &[u8] = b"relist/opaque-item/1\0";

impl Digest {
    /// The digest of the text of a JSON value.
    #[must_use]
    pub fn of(text: &str) -> Self {
        match canonical(text) {
            Some(canonical) => Self::Canonical(Sha256::digest(canonical.as_bytes()).into()),
            None => Self::Opaque(
                Sha256::new()
                    .chain_update(OPAQUE_DOMAIN)
                    .chain_update(text.as_bytes())
                    .finalize()
                    .into(),
            ),
        }
    }

    /// The hash, without its kind.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        match self {
            Self::Canonical(bytes) | Self::Opaque(bytes) => bytes,
        }
    }

    /// Whether anybody can compute the digest from the item.
    #[must_use]
    pub const fn is_canonical(&self) -> bool {
        matches!(self, Self::Canonical(_))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_canonical() {
            "sha256:"
        } else {
            "opaque:"
        };
        f.write_str(word)?;
        self.bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The canonical form of a JSON text; `None` where it would lose something.
pub(crate) fn canonical(text: &str) -> Option<String> {
    if !is_lossless(text) {
        return None;
    }
    let value: Value = unique::parse(text)?;
    serde_json_canonicalizer::to_string(&value).ok()
}

/// Parsing that refuses a member named twice, where `serde_json` keeps the last.
mod unique {
    use std::fmt;

    use serde::de::{
        Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
    };
    use serde_json::{Map, Value};

    pub(super) fn parse(text: &str) -> Option<Value> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = Unique.deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(value)
    }

    struct Unique;

    impl<'de> DeserializeSeed<'de> for Unique {
        type Value = Value;
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
            deserializer.deserialize_any(self)
        }
    }

    impl<'de> Visitor<'de> for Unique {
        type Value = Value;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON value")
        }
        fn visit_unit<E>(self) -> Result<Value, E> {
            Ok(Value::Null)
        }
        fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
            Ok(Value::Bool(v))
        }
        fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
            Ok(v.into())
        }
        fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
            Ok(v.into())
        }
        fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
            Ok(v.into())
        }
        fn visit_str<E>(self, v: &str) -> Result<Value, E> {
            Ok(Value::String(v.to_owned()))
        }
        fn visit_string<E>(self, v: String) -> Result<Value, E> {
            Ok(Value::String(v))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = seq.next_element_seed(Self)? {
                list.push(element);
            }
            Ok(Value::Array(list))
        }
        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
            let mut map = Map::new();
            while let Some(name) = members.next_key_seed(Name)? {
                let value = members.next_value_seed(Self)?;
                if map.insert(name, value).is_some() {
                    return Err(A::Error::custom("a member is named twice"));
                }
            }
            Ok(Value::Object(map))
        }
    }

    struct Name;
    impl<'de> DeserializeSeed<'de> for Name {
        type Value = String;
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
            String::deserialize(deserializer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        canonical(text).expect(text)
    }

    /// RFC 8785, appendix B: doubles by their bits, and how they are written.
    #[test]
    fn doubles_are_written_as_the_rfc_says() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let written = serde_json_canonicalizer::to_string(&f64::from_bits(bits));
            assert_eq!(written.expect("finite"), expected, "{bits:016x}");
            // What is canonical once stays so.
            assert_eq!(form(expected), expected);
        }
        for bits in [0x7fff_ffff_ffff_ffff, 0x7ff0_0000_0000_0000] {
            assert!(serde_json_canonicalizer::to_string(&f64::from_bits(bits)).is_err());
        }
    }

    /// The RFC's published test data: `arrays.json` and `weird.json`.
    #[test]
    fn the_published_documents_are_written_as_published() {
        assert_eq!(
            form(r#"[ 56, { "d": true, "10": null, "1": [ ] } ]"#),
            r#"[56,{"1":[],"10":null,"d":true}]"#
        );
        let weird = r#"{
            "\u20ac": "Euro Sign",
            "\r": "Carriage Return",
            "\u000a": "Newline",
            "1": "One",
            "\u0080": "Control\u007f",
            "\ud83d\ude02": "Smiley",
            "\u00f6": "Latin Small Letter O With Diaeresis",
            "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "</script>": "Browser Challenge"
        }"#;
        let expected = "{\"\\n\":\"Newline\",\"\\r\":\"Carriage Return\",\"1\":\"One\",\"</script>\":\"Browser Challenge\",\"\u{80}\":\"Control\u{7f}\",\"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",\"\u{1f602}\":\"Smiley\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
        assert_eq!(form(weird), expected);
    }

    /// RFC 8785, section 3.2.3: sorting by UTF-16 code units.
    #[test]
    fn members_are_sorted_as_the_rfc_says() {
        let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let values: Vec<String> =
            serde_json::from_str::<serde_json::Map<String, Value>>(&form(text))
                .expect("an object")
                .into_iter()
                .map(|(_, v)| v.as_str().expect("a string").to_owned())
                .collect();
        assert_eq!(
            values,
            [
                "Carriage Return",
                "One",
                "Control",
                "Latin Small Letter O With Diaeresis",
                "Euro Sign",
                "Emoji: Grinning Face",
                "Hebrew Letter Dalet With Dagesh",
            ]
        );
    }

    /// RFC 8785, section 3.2.2, the example of primitive values.
    #[test]
    fn primitives_are_written_as_the_rfc_says() {
        let text = r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#;
        // 333333333.33333329 is no shortest form: the reader of a signature
        // accepts the rounding, a tag must not. Hence the direct call.
        let value: Value = serde_json::from_str(text).expect("JSON");
        let written = serde_json_canonicalizer::to_string(&value).expect("writes");
        assert_eq!(
            written,
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canonical("333333333.33333329"), None);
    }

    /// RFC 8785, appendix B, and the vectors of field report L3.
    #[test]
    fn numbers_are_written_as_the_rfc_says() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("5e-324", "5e-324"),
            ("-5e-324", "-5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("-9007199254740992", "-9007199254740992"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("1e23", "1e+23"),
            ("1.0000000000000001e23", "1.0000000000000001e+23"),
            ("999999999999999700000", "999999999999999700000"),
            ("999999999999999900000", "999999999999999900000"),
            ("1e21", "1e+21"),
            ("9.999999999999997e-7", "9.999999999999997e-7"),
            ("0.000001", "0.000001"),
            ("333333333.3333332", "333333333.3333332"),
            ("333333333.33333325", "333333333.33333325"),
            ("-0.0000033333333333333333", "-0.0000033333333333333333"),
            ("1424953923781206.2", "1424953923781206.2"),
            ("1e20", "100000000000000000000"),
            ("1e-7", "1e-7"),
            ("1.0", "1"),
            ("1e0", "1"),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
    }

    #[test]
    fn spelling_does_not_count_and_content_does() {
        let same = |a: &str, b: &str| assert_eq!(Digest::of(a), Digest::of(b));
        same(r#"{"a":1,"b":2}"#, r#"{ "b" : 2, "a" : 1.0 }"#);
        same(r#""é""#, r#""\u00e9""#);
        // NFC and NFD are different texts.
        assert_ne!(Digest::of("\"\u{e9}\""), Digest::of("\"e\u{301}\""));
    }

    #[test]
    fn what_canonical_form_would_lose_is_opaque() {
        for text in [
            "9007199254740993",
            "1e400",
            r#""\ud83d""#,
            r#""\ude00\ud83d""#,
            r#"{"a":1,"a":2}"#,
            r#"{"deep":[{"x":{"a":1,"a":1}}]}"#,
        ] {
            assert!(!Digest::of(text).is_canonical(), "{text}");
        }
        assert_ne!(
            Digest::of("9007199254740993"),
            Digest::of("9007199254740992")
        );
    }

    /// Fixes the computation itself: SHA-256 of `{"name":"a"}`.
    #[test]
    fn the_digest_is_the_plain_sha_256_of_the_canonical_form() {
        assert_eq!(
            format!("{:?}", Digest::of(r#"{ "name": "a" }"#)),
            "sha256:d9d719b27480b55cd4918020e7473e716ed3569c8adafe926cf9b10b4f8ef064"
        );
    }
}
