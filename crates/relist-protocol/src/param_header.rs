//! The `x-mcp-header` annotation: tool parameters that travel in HTTP headers too.
//!
//! Specification: [custom headers from tool parameters](https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#custom-headers-from-tool-parameters).

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The annotation's key within a parameter's schema.
const ANNOTATION: &str = "x-mcp-header";

/// The deepest schema that is searched; deeper ones are refused.
const MAX_DEPTH: usize = 64;

/// One parameter that is mirrored into a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// The name after `Mcp-Param-`, as annotated.
    pub name: String,
    /// The chain of property names that leads to the value.
    pub path: Vec<String>,
}

/// Why a tool's annotations are illegal, and with them the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamHeaderError {
    /// The annotation's value is not a string.
    #[error("`x-mcp-header` at `{path}` is not a string")]
    NotAString {
        /// Where the annotation stands.
        path: String,
    },
    /// The name is empty or not an HTTP token.
    #[error("`x-mcp-header` at `{path}`: {name:?} is not an HTTP header name")]
    NotAToken {
        /// Where the annotation stands.
        path: String,
        /// The illegal name.
        name: String,
    },
    /// Two annotations with one name, compared without case.
    #[error("`x-mcp-header` {name:?} is used twice")]
    Duplicate {
        /// The repeated name.
        name: String,
    },
    /// The parameter is not an integer, a string or a boolean.
    #[error(
        "`x-mcp-header` at `{path}` is on a parameter of type {found}; only integer, string and boolean may be mirrored"
    )]
    NotPrimitive {
        /// Where the annotation stands.
        path: String,
        /// The type found.
        found: String,
    },
    /// The annotation cannot be reached through `properties` alone.
    #[error("`x-mcp-header` at `{path}` is not reachable through `properties` alone")]
    NotReachable {
        /// Where the annotation stands.
        path: String,
    },
    /// The schema nests too deeply to be searched.
    #[error("the input schema nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Finds the mirrored parameters of an input schema.
///
/// # Errors
///
/// [`ParamHeaderError`] when an annotation breaks a rule: a client leaves such
/// a tool out of the list, a server does not accept it into its catalog.
///
/// ```
/// use relist_protocol::param_header::param_headers;
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {
///     "region": {"type": "string", "x-mcp-header": "Region"}
/// }});
/// let headers = param_headers(&schema).unwrap();
/// assert_eq!(headers[0].name, "Region");
/// assert_eq!(headers[0].path, ["region"]);
/// ```
pub fn param_headers(schema: &Value) -> Result<Vec<ParamHeader>, ParamHeaderError> {
    let mut found = Vec::new();
    search(schema, &mut Vec::new(), true, 0, &mut found)?;
    let mut seen = HashSet::new();
    for header in &found {
        if !seen.insert(header.name.to_ascii_lowercase()) {
            return Err(ParamHeaderError::Duplicate {
                name: header.name.clone(),
            });
        }
    }
    Ok(found)
}

fn search(
    schema: &Value,
    path: &mut Vec<String>,
    reachable: bool,
    depth: usize,
    found: &mut Vec<ParamHeader>,
) -> Result<(), ParamHeaderError> {
    if depth > MAX_DEPTH {
        return Err(ParamHeaderError::TooDeep);
    }
    let object = match schema {
        Value::Object(object) => object,
        Value::Array(list) => {
            for element in list {
                search(element, path, false, depth + 1, found)?;
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    if let Some(annotation) = object.get(ANNOTATION) {
        found.push(check(
            annotation,
            object,
            path,
            reachable && !path.is_empty(),
        )?);
    }
    for (keyword, value) in object {
        match keyword.as_str() {
            "properties" => {
                // Here keys are parameter names, not keywords: a parameter may
                // itself be called `x-mcp-header`.
                if let Value::Object(properties) = value {
                    for (name, property) in properties {
                        path.push(name.clone());
                        search(property, path, reachable, depth + 1, found)?;
                        path.pop();
                    }
                }
            }
            "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
                if let Value::Object(schemas) = value {
                    for (name, inner) in schemas {
                        path.push(name.clone());
                        search(inner, path, false, depth + 1, found)?;
                        path.pop();
                    }
                }
            }
            // Values, not schemas: whatever stands in them is data.
            "const" | "enum" | "default" | "examples" | "required" | ANNOTATION => {}
            _ => {
                path.push(keyword.clone());
                search(value, path, false, depth + 1, found)?;
                path.pop();
            }
        }
    }
    Ok(())
}

fn check(
    annotation: &Value,
    schema: &Map<String, Value>,
    path: &[String],
    reachable: bool,
) -> Result<ParamHeader, ParamHeaderError> {
    let place = || path.join(".");
    let Value::String(name) = annotation else {
        return Err(ParamHeaderError::NotAString { path: place() });
    };
    if !is_token(name) {
        return Err(ParamHeaderError::NotAToken {
            path: place(),
            name: name.clone(),
        });
    }
    match schema.get("type") {
        Some(Value::String(t)) if matches!(t.as_str(), "integer" | "string" | "boolean") => {}
        // A nullable parameter is still one value, or none.
        Some(Value::Array(types))
            if types.len() == 2
                && types.iter().any(|t| t == "null")
                && types
                    .iter()
                    .any(|t| t == "integer" || t == "string" || t == "boolean") => {}
        other => {
            return Err(ParamHeaderError::NotPrimitive {
                path: place(),
                found: other.map_or_else(|| "none".to_owned(), Value::to_string),
            });
        }
    }
    if !reachable {
        return Err(ParamHeaderError::NotReachable { path: place() });
    }
    Ok(ParamHeader {
        name: name.clone(),
        path: path.to_vec(),
    })
}

/// The largest integer that a double tells from its neighbours.
const MAX_SAFE: i64 = 9_007_199_254_740_991;

impl ParamHeader {
    /// The value that the arguments hold for this header, as text; `None` when
    /// it is absent, `null`, or of a type that is never mirrored.
    #[must_use]
    pub fn value_in(&self, arguments: &Map<String, Value>) -> Option<String> {
        let (first, rest) = self.path.split_first()?;
        let mut value = arguments.get(first)?;
        for step in rest {
            value = value.as_object()?.get(step)?;
        }
        match value {
            Value::String(s) => Some(s.clone()),
            Value::Bool(b) => Some(b.to_string()),
            Value::Number(n) => integer(n).map(|i| i.to_string()),
            _ => None,
        }
    }

    /// Whether a decoded header value stands for the argument's value; integers
    /// are compared as numbers, so `42.0` is `42`.
    #[must_use]
    pub fn matches(header: &str, argument: &str) -> bool {
        if header == argument {
            return true;
        }
        match (header.parse::<f64>(), argument.parse::<i64>()) {
            #[allow(
                clippy::cast_precision_loss,
                reason = "mirrored integers are safe ones"
            )]
            (Ok(h), Ok(a)) => h.fract() == 0.0 && h == a as f64,
            _ => false,
        }
    }
}

fn integer(n: &serde_json::Number) -> Option<i64> {
    let value = match n.as_i64() {
        Some(i) => i,
        None => {
            let f = n.as_f64()?;
            if f.fract() != 0.0 || f.abs() > 9_007_199_254_740_991.0 {
                return None;
            }
            #[allow(
                clippy::cast_possible_truncation,
                reason = "whole and in range, checked above"
            )]
            let i = f as i64;
            i
        }
    };
    (-MAX_SAFE..=MAX_SAFE).contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(property: Value) -> Value {
        json!({"type": "object", "properties": {"p": property}})
    }

    #[test]
    fn illegal_annotations_are_told_apart() {
        let bad = |v: Value| param_headers(&v).expect_err("illegal");
        assert!(matches!(
            bad(schema(json!({"type": "string", "x-mcp-header": ""}))),
            ParamHeaderError::NotAToken { .. }
        ));
        assert!(matches!(
            bad(schema(json!({"type": "string", "x-mcp-header": "a b"}))),
            ParamHeaderError::NotAToken { .. }
        ));
        assert!(matches!(
            bad(schema(json!({"type": "number", "x-mcp-header": "N"}))),
            ParamHeaderError::NotPrimitive { .. }
        ));
        assert!(matches!(
            bad(schema(json!({"type": "string", "x-mcp-header": 1}))),
            ParamHeaderError::NotAString { .. }
        ));
        assert!(matches!(
            bad(json!({"properties": {
                "a": {"type": "string", "x-mcp-header": "Same"},
                "b": {"type": "string", "x-mcp-header": "same"}}})),
            ParamHeaderError::Duplicate { .. }
        ));
        assert!(matches!(
            bad(json!({"properties": {"list": {"type": "array",
                "items": {"type": "string", "x-mcp-header": "L"}}}})),
            ParamHeaderError::NotReachable { .. }
        ));
        assert!(matches!(
            bad(json!({"anyOf": [{"properties": {
                "a": {"type": "string", "x-mcp-header": "A"}}}]})),
            ParamHeaderError::NotReachable { .. }
        ));
    }

    #[test]
    fn nested_properties_are_reachable() {
        let found = param_headers(&json!({"properties": {"where": {"type": "object",
            "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}}}}))
        .expect("legal");
        assert_eq!(found[0].path, ["where", "zone"]);
        let arguments = json!({"where": {"zone": 42.0}});
        let Value::Object(arguments) = arguments else {
            unreachable!()
        };
        assert_eq!(found[0].value_in(&arguments).as_deref(), Some("42"));
    }

    #[test]
    fn a_parameter_may_be_called_like_the_annotation() {
        let found = param_headers(&json!({"properties": {
            "x-mcp-header": {"type": "string"}}}))
        .expect("legal");
        assert!(found.is_empty());
    }

    #[test]
    fn null_and_absent_values_are_not_mirrored() {
        let header = ParamHeader {
            name: "P".into(),
            path: vec!["p".into()],
        };
        for arguments in [json!({}), json!({"p": null}), json!({"p": 1.5})] {
            assert_eq!(
                header.value_in(arguments.as_object().expect("object")),
                None
            );
        }
    }

    #[test]
    fn integers_are_compared_as_numbers() {
        assert!(ParamHeader::matches("42.0", "42"));
        assert!(!ParamHeader::matches("43", "42"));
        assert!(!ParamHeader::matches("true", "false"));
    }
}
