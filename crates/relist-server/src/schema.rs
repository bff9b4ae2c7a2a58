//! The schemas of tools: compiled once for each definition, and never fetched.

use jsonschema::Validator;
use relist_protocol::param_header::{ParamHeader, param_headers};
use serde_json::Value;

/// Findings that are reported of one value; there may be thousands.
const REPORTED: usize = 5;

/// What of a tool's definition takes part in calls.
#[derive(Debug)]
pub(crate) struct ToolSchemas {
    pub(crate) input: Validator,
    pub(crate) output: Option<Validator>,
    pub(crate) headers: Vec<ParamHeader>,
    has_object_root: bool,
}

/// Why a definition is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// A tool without an `inputSchema`.
    #[error("`inputSchema` is missing; a tool without parameters says {{\"type\":\"object\"}}")]
    NoInputSchema,
    /// The root of an `inputSchema` describes something else than an object.
    #[error("`inputSchema` has to say \"type\": \"object\" at its root")]
    NotAnObject,
    /// A schema that cannot be compiled, or that refers to what is not in it.
    #[error("`{field}` is not a usable JSON Schema: {reason}")]
    Schema {
        /// `inputSchema` or `outputSchema`.
        field: &'static str,
        /// What the compiler said.
        reason: String,
    },
    /// An annotation of a parameter that breaks a rule.
    #[error(transparent)]
    Header(#[from] relist_protocol::param_header::ParamHeaderError),
    /// A URI template that cannot be matched.
    #[error("the URI template cannot be read: {0}")]
    Template(String),
}

fn compile(field: &'static str, schema: &Value) -> Result<Validator, DefinitionError> {
    // The default dialect is 2020-12; without the resolver features nothing is
    // ever fetched, and a reference to elsewhere fails here.
    jsonschema::options()
        .build(schema)
        .map_err(|e| DefinitionError::Schema {
            field,
            reason: e.to_string(),
        })
}

impl ToolSchemas {
    pub(crate) fn compile(tool: &Value) -> Result<Self, DefinitionError> {
        let input = tool
            .get("inputSchema")
            .ok_or(DefinitionError::NoInputSchema)?;
        Ok(Self {
            has_object_root: input.get("type").and_then(Value::as_str) == Some("object"),
            input: compile("inputSchema", input)?,
            output: match tool.get("outputSchema") {
                None | Some(Value::Null) => None,
                Some(schema) => Some(compile("outputSchema", schema)?),
            },
            headers: param_headers(input)?,
        })
    }

    /// The specification wants `"type": "object"` at the root. Published
    /// servers have left it out, so a definition that stands for somebody
    /// else's tool is served as it is; one with a handler has to be right.
    pub(crate) const fn check_root(&self) -> Result<(), DefinitionError> {
        if self.has_object_root {
            Ok(())
        } else {
            Err(DefinitionError::NotAnObject)
        }
    }
}

/// What is wrong with a value, for a person or a model; `None` when nothing is.
pub(crate) fn findings(validator: &Validator, value: &Value) -> Option<String> {
    if validator.is_valid(value) {
        return None;
    }
    let found: Vec<String> = validator
        .iter_errors(value)
        .take(REPORTED)
        .map(|error| {
            let mut text = error.to_string();
            if let Some((end, _)) = text.char_indices().nth(300) {
                text.truncate(end);
                text.push('…');
            }
            match error.instance_path().as_str() {
                "" => text,
                place => format!("{place}: {text}"),
            }
        })
        .collect();
    Some(found.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(input: Value) -> Value {
        json!({"name": "t", "inputSchema": input})
    }

    #[test]
    fn definitions_that_cannot_be_served_are_refused() {
        let refused = |tool: Value| ToolSchemas::compile(&tool).expect_err("refused");
        assert_eq!(
            refused(json!({"name": "t"})),
            DefinitionError::NoInputSchema
        );
        for broken in [
            json!({"type": "object", "properties": 7}),
            json!({"type": "object", "$ref": "https://example.com/schema.json"}),
            json!({"type": "object", "$ref": "file:///etc/passwd"}),
            json!({"type": "object", "$ref": "#/$defs/absent"}),
        ] {
            let error = refused(tool(broken.clone()));
            assert!(
                matches!(error, DefinitionError::Schema { .. }),
                "{broken}: {error}"
            );
        }
        assert!(matches!(
            refused(tool(json!({"type": "object", "properties": {
                "n": {"type": "number", "x-mcp-header": "N"}}}))),
            DefinitionError::Header(_)
        ));
    }

    #[test]
    fn the_default_dialect_is_2020_12_and_an_older_one_may_be_named() {
        let modern = ToolSchemas::compile(&tool(json!({"type": "object",
            "properties": {"p": {"prefixItems": [{"type": "string"}]}}})))
        .expect("compiles");
        assert!(findings(&modern.input, &json!({"p": [1]})).is_some());
        let older = ToolSchemas::compile(&tool(json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"p": {"items": [{"type": "string"}]}}})))
        .expect("compiles");
        assert!(findings(&older.input, &json!({"p": [1]})).is_some());
    }

    #[test]
    fn findings_are_bounded_and_name_the_place() {
        let schemas = ToolSchemas::compile(&tool(json!({"type": "object",
            "additionalProperties": {"type": "string"}})))
        .expect("compiles");
        let many: Value = (0..1000).map(|n| (format!("k{n}"), json!(n))).collect();
        let text = findings(&schemas.input, &many).expect("findings");
        assert!(text.contains("/k0") && text.len() < 2_000, "{text}");
        assert_eq!(findings(&schemas.input, &json!({"a": "b"})), None);
    }
}
