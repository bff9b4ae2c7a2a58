//! Answering what a server asks of its client.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use relist_protocol::RpcError;
use relist_protocol::jsonrpc::{RequestId, Response};
use relist_protocol::message::{method, to_raw};

use crate::config::ClientConfig;

/// The capability that a question needs.
fn needed(method: &str) -> Option<&'static str> {
    match method {
        method::ELICIT => Some("elicitation"),
        method::SAMPLE => Some("sampling"),
        method::LIST_ROOTS => Some("roots"),
        _ => None,
    }
}

/// The answer to a question, as the handler gives it.
pub(crate) async fn answer(
    config: &ClientConfig,
    method: &str,
    params: Option<&RawValue>,
) -> Result<Value, RpcError> {
    if method == method::PING {
        return Ok(json!({}));
    }
    let (Some(capability), Some(handler)) = (needed(method), config.user_input.as_deref()) else {
        return Err(RpcError::method_not_found(method));
    };
    if !handler.capabilities().contains_key(capability) {
        return Err(RpcError::method_not_found(method));
    }
    let params: Map<String, Value> = match params {
        None => Map::new(),
        Some(raw) => serde_json::from_str(raw.get())
            .map_err(|e| RpcError::invalid_params(format!("Invalid params: {e}")))?,
    };
    match method {
        method::ELICIT => {
            let schema = params.get("requestedSchema").cloned();
            let mut result = handler.elicit(params).await?;
            if let Some(schema) = schema {
                fill_defaults(&mut result, &schema);
            }
            Ok(result)
        }
        method::SAMPLE => handler.sample(params).await,
        _ => handler.roots().await,
    }
}

/// The answer as a message. An answer that cannot be written is an error of ours.
pub(crate) fn response(id: RequestId, outcome: Result<Value, RpcError>) -> Response {
    let outcome = outcome.and_then(|value| {
        if !value.is_object() {
            return Err(RpcError::internal("The client's answer is not an object"));
        }
        to_raw(&value).map_err(|e| RpcError::internal(e.to_string()))
    });
    Response {
        id: Some(id),
        outcome,
    }
}

/// Gives the properties that an accepted answer leaves out the defaults that
/// the schema has for them.
fn fill_defaults(result: &mut Value, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return;
    };
    let Some(result) = result.as_object_mut() else {
        return;
    };
    if result.get("action").and_then(Value::as_str) != Some("accept") {
        return;
    }
    let content = result.entry("content").or_insert_with(|| json!({}));
    let Some(content) = content.as_object_mut() else {
        return;
    };
    for (name, property) in properties {
        if let Some(default) = property.get("default")
            && !content.contains_key(name)
        {
            content.insert(name.clone(), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_answer_is_completed_with_defaults() {
        let schema = json!({"type": "object", "properties": {
            "name": {"type": "string", "default": "John"},
            "age": {"type": "integer", "default": 30},
            "note": {"type": "string"}
        }});
        let mut result = json!({"action": "accept", "content": {"age": 7}});
        fill_defaults(&mut result, &schema);
        assert_eq!(
            result,
            json!({"action": "accept", "content": {"age": 7, "name": "John"}})
        );
        let mut bare = json!({"action": "accept"});
        fill_defaults(&mut bare, &schema);
        assert_eq!(
            bare,
            json!({"action": "accept", "content": {"name": "John", "age": 30}})
        );
        let mut declined = json!({"action": "decline"});
        fill_defaults(&mut declined, &schema);
        assert_eq!(declined, json!({"action": "decline"}));
    }

    #[tokio::test]
    async fn a_ping_is_answered_and_the_rest_only_with_a_handler() {
        let config = ClientConfig::new("test", "0");
        assert_eq!(answer(&config, "ping", None).await, Ok(json!({})));
        let refused = answer(&config, "roots/list", None).await;
        assert_eq!(refused.expect_err("nobody answers").code, -32601);
    }
}
