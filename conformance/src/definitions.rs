//! The items of the four catalogs, in the order in which they are listed.

use serde_json::{Value, json};

/// The tools. The suite calls the first one with no arguments.
#[must_use]
pub fn tools() -> Vec<Value> {
    let mut tools: Vec<Value> = WITHOUT_ARGUMENTS
        .iter()
        .map(|(name, description)| {
            json!({
                "name": name,
                "description": description,
                "inputSchema": { "type": "object", "properties": {} },
            })
        })
        .collect();
    tools.push(json!({
        "name": "test_sampling",
        "description": "Asks the client's model to answer a prompt",
        "inputSchema": {
            "type": "object",
            "properties": {
                "prompt": { "type": "string", "description": "What the model is asked" },
            },
            "required": ["prompt"],
        },
    }));
    tools.push(json!({
        "name": "test_elicitation",
        "description": "Asks the client's user for a name and an address",
        "inputSchema": {
            "type": "object",
            "properties": {
                "message": { "type": "string", "description": "What the user is told" },
            },
            "required": ["message"],
        },
    }));
    tools.push(json!({
        "name": "test_param_headers",
        "description": "Has a parameter that travels in an HTTP header too",
        "inputSchema": {
            "type": "object",
            "properties": {
                "region": {
                    "type": "string",
                    "description": "Where the work is done",
                    "x-mcp-header": "Region",
                },
            },
            "required": ["region"],
        },
    }));
    tools.push(json!({
        "name": "json_schema_2020_12_tool",
        "description": "Has an input schema that uses much of JSON Schema 2020-12",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {
                        "street": { "type": "string" },
                        "city": { "type": "string" },
                    },
                },
            },
            "properties": {
                "name": { "type": "string" },
                "address": { "$ref": "#/$defs/address" },
                "contactMethod": { "type": "string", "enum": ["phone", "email"] },
                "phone": { "type": "string" },
                "email": { "type": "string" },
            },
            "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
            "if": {
                "properties": { "contactMethod": { "const": "phone" } },
                "required": ["contactMethod"],
            },
            "then": { "required": ["phone"] },
            "else": { "required": ["email"] },
            "additionalProperties": false,
        },
    }));
    tools
}

/// The tools that take no arguments.
const WITHOUT_ARGUMENTS: [(&str, &str); 24] = [
    ("test_simple_text", "Answers with a text"),
    ("test_image_content", "Answers with an image"),
    ("test_audio_content", "Answers with a sound"),
    (
        "test_embedded_resource",
        "Answers with a resource inside the result",
    ),
    (
        "test_multiple_content_types",
        "Answers with a text, an image and a resource",
    ),
    ("test_error_handling", "Fails, and says so in its result"),
    (
        "test_tool_with_progress",
        "Reports how far it is before it answers",
    ),
    (
        "test_tool_with_logging",
        "Writes three log messages before it answers",
    ),
    (
        "test_elicitation_sep1034_defaults",
        "Asks the user for values that all have defaults",
    ),
    (
        "test_elicitation_sep1330_enums",
        "Asks the user to choose, in every form that a choice can have",
    ),
    (
        "test_reconnection",
        "Ends its event stream before it answers",
    ),
    (
        "test_missing_capability",
        "Needs a client that offers its model",
    ),
    (
        "test_streaming_elicitation",
        "Reports progress on the way to its answer",
    ),
    (
        "test_logging_tool",
        "Writes a log message if the request asks for them",
    ),
    ("test_trigger_tool_change", "Changes the list of tools"),
    ("test_trigger_prompt_change", "Changes the list of prompts"),
    (
        "test_input_required_result_elicitation",
        "Needs the user's name",
    ),
    (
        "test_input_required_result_sampling",
        "Needs an answer of the client's model",
    ),
    (
        "test_input_required_result_list_roots",
        "Needs the client's roots",
    ),
    (
        "test_input_required_result_request_state",
        "Needs a confirmation, and its own state back",
    ),
    (
        "test_input_required_result_multiple_inputs",
        "Needs the user, the model and the roots at once",
    ),
    (
        "test_input_required_result_multi_round",
        "Needs two answers, one after the other",
    ),
    (
        "test_input_required_result_tampered_state",
        "Needs its own state back as it gave it",
    ),
    (
        "test_input_required_result_capabilities",
        "Needs whatever the client can give",
    ),
];

/// A tool that is listed after every other change of the list of tools.
#[must_use]
pub fn extra_tool() -> Value {
    json!({
        "name": "test_extra_tool",
        "description": "Comes and goes with the list's changes",
        "inputSchema": { "type": "object", "properties": {} },
    })
}

/// The prompts.
#[must_use]
pub fn prompts() -> Vec<Value> {
    vec![
        json!({ "name": "test_simple_prompt", "description": "A prompt without arguments" }),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "A prompt that repeats its arguments",
            "arguments": [
                { "name": "arg1", "description": "The first value", "required": true },
                { "name": "arg2", "description": "The second value", "required": true },
            ],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt with a resource inside",
            "arguments": [
                { "name": "resourceUri", "description": "The resource's URI", "required": true },
            ],
        }),
        json!({ "name": "test_prompt_with_image", "description": "A prompt with an image" }),
        json!({
            "name": "test_input_required_result_prompt",
            "description": "A prompt that needs something from the user first",
        }),
    ]
}

/// A prompt that is listed after every other change of the list of prompts.
#[must_use]
pub fn extra_prompt() -> Value {
    json!({ "name": "test_extra_prompt", "description": "Comes and goes with the list's changes" })
}

/// The resources.
#[must_use]
pub fn resources() -> Vec<Value> {
    vec![
        json!({
            "uri": "test://static-text",
            "name": "static-text",
            "description": "A text that stays the same",
            "mimeType": "text/plain",
        }),
        json!({
            "uri": "test://static-binary",
            "name": "static-binary",
            "description": "An image that stays the same",
            "mimeType": "image/png",
        }),
        json!({
            "uri": "test://watched-resource",
            "name": "watched-resource",
            "description": "A text that can be watched",
            "mimeType": "text/plain",
        }),
    ]
}

/// The resource templates.
#[must_use]
pub fn resource_templates() -> Vec<Value> {
    vec![json!({
        "uriTemplate": "test://template/{id}/data",
        "name": "template-data",
        "description": "Data for an id",
        "mimeType": "application/json",
    })]
}
