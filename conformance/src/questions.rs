//! What the server asks of its client: parameters of `elicitation/create` and
//! `sampling/createMessage`.

use serde_json::{Value, json};

/// Asks the user for values, with a schema of their names and types.
#[must_use]
pub fn elicitation(message: &str, properties: &Value, required: &[&str]) -> Value {
    json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": properties,
            "required": required,
        },
    })
}

/// Asks the client's model, for an answer of at most so many tokens.
#[must_use]
pub fn sampling(prompt: &str, max_tokens: u32) -> Value {
    json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
        "maxTokens": max_tokens,
    })
}

/// Asks for a name and an address.
#[must_use]
pub fn username_and_email(message: &str) -> Value {
    let properties = json!({
        "username": { "type": "string", "description": "The user's name" },
        "email": { "type": "string", "description": "The user's address" },
    });
    elicitation(message, &properties, &["username", "email"])
}

/// Asks for a value of every simple type, each with a default.
#[must_use]
pub fn with_defaults() -> Value {
    let properties = json!({
        "name": { "type": "string", "description": "A name", "default": "John Doe" },
        "age": { "type": "integer", "description": "An age", "default": 30 },
        "score": { "type": "number", "description": "A score", "default": 95.5 },
        "status": {
            "type": "string",
            "description": "A status",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": { "type": "boolean", "description": "A verdict", "default": true },
    });
    elicitation("Please look over these values", &properties, &[])
}

/// Asks for a choice in every form that a choice can have.
#[must_use]
pub fn choices() -> Value {
    let properties = json!({
        "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
        "titledSingle": {
            "type": "string",
            "oneOf": [
                { "const": "value1", "title": "First Option" },
                { "const": "value2", "title": "Second Option" },
                { "const": "value3", "title": "Third Option" },
            ],
        },
        // The form that came before `oneOf`, and is still allowed.
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": { "type": "string", "enum": ["option1", "option2", "option3"] },
        },
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    { "const": "value1", "title": "First Choice" },
                    { "const": "value2", "title": "Second Choice" },
                    { "const": "value3", "title": "Third Choice" },
                ],
            },
        },
    });
    elicitation("Please choose", &properties, &[])
}
