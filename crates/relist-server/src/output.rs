//! What handlers answer with.

use std::time::Duration;

use relist_protocol::extension::{COMPLETE, INPUT_REQUIRED};
use relist_protocol::list::CacheScope;
use relist_protocol::message::text_content;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Asks the client for input before the request can be answered (multi
/// round-trip request). In the legacy era the same requests are sent to the
/// client one by one, and the handler is called again with the answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InputRequired {
    /// What is asked, by a key of the handler's choice:
    /// `{"method": "elicitation/create", "params": {…}}`.
    pub input_requests: Map<String, Value>,
    /// Comes back untouched, or forged: see [`crate::StateSeal`].
    pub request_state: Option<String>,
}

impl InputRequired {
    /// Asks nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks one thing more.
    #[must_use]
    pub fn ask(mut self, key: impl Into<String>, method: &str, params: Value) -> Self {
        let request = json!({ "method": method, "params": params });
        self.input_requests.insert(key.into(), request);
        self
    }

    /// Carries state through the client.
    #[must_use]
    pub fn state(mut self, state: impl Into<String>) -> Self {
        self.request_state = Some(state.into());
        self
    }

    pub(crate) fn into_result(self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("resultType".into(), INPUT_REQUIRED.into());
        if !self.input_requests.is_empty() {
            map.insert("inputRequests".into(), Value::Object(self.input_requests));
        }
        if let Some(state) = self.request_state {
            map.insert("requestState".into(), state.into());
        }
        map
    }
}

/// What a handler came to.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// A result, without the fields that the server adds.
    Result(Map<String, Value>),
    /// Nothing yet: the client has to answer first.
    Input(InputRequired),
}

impl Outcome {
    fn from_raw(raw: &RawValue) -> Self {
        match serde_json::from_str::<Value>(raw.get()) {
            Ok(Value::Object(mut map)) if map.get("resultType") == Some(&json!(INPUT_REQUIRED)) => {
                let requests = match map.remove("inputRequests") {
                    Some(Value::Object(requests)) => requests,
                    _ => Map::new(),
                };
                let state = match map.remove("requestState") {
                    Some(Value::String(state)) => Some(state),
                    _ => None,
                };
                Self::Input(InputRequired {
                    input_requests: requests,
                    request_state: state,
                })
            }
            Ok(Value::Object(map)) => Self::Result(map),
            _ => Self::Result(Map::new()),
        }
    }
}

/// Hints that only a read carries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadHints {
    pub(crate) ttl: Option<Duration>,
    pub(crate) scope: Option<CacheScope>,
}

/// What handlers of all kinds have in common.
pub(crate) trait Settled: Send + 'static {
    fn into_parts(self) -> (Outcome, ReadHints);
}

macro_rules! output {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            pub(crate) outcome: Outcome,
            pub(crate) hints: ReadHints,
        }

        impl $name {
            fn result(map: Map<String, Value>) -> Self {
                Self { outcome: Outcome::Result(map), hints: ReadHints::default() }
            }

            /// A result as it stands, for whoever passes one through. A
            /// `resultType` of `input_required` is understood.
            #[must_use]
            pub fn raw(result: &RawValue) -> Self {
                Self { outcome: Outcome::from_raw(result), hints: ReadHints::default() }
            }

            /// Asks the client first.
            #[must_use]
            pub fn input_required(input: InputRequired) -> Self {
                Self { outcome: Outcome::Input(input), hints: ReadHints::default() }
            }

            /// One field of the result more, `_meta` for example.
            #[must_use]
            pub fn with(mut self, field: &str, value: Value) -> Self {
                if let Outcome::Result(map) = &mut self.outcome {
                    map.insert(field.to_owned(), value);
                }
                self
            }
        }

        impl Settled for $name {
            fn into_parts(self) -> (Outcome, ReadHints) {
                (self.outcome, self.hints)
            }
        }

        impl From<InputRequired> for $name {
            fn from(input: InputRequired) -> Self {
                Self::input_required(input)
            }
        }
    };
}

output! {
    /// The result of a tool.
    ToolOutput
}
output! {
    /// The content of a resource.
    ReadOutput
}
output! {
    /// The messages of a prompt.
    PromptOutput
}

fn object(field: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(field.to_owned(), value)])
}

impl ToolOutput {
    /// One text block.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::content(vec![text_content(text.as_ref())])
    }

    /// Content blocks.
    #[must_use]
    pub fn content(blocks: Vec<Value>) -> Self {
        Self::result(object("content", blocks.into()))
    }

    /// A failure that a model can read and act upon.
    #[must_use]
    pub fn error(text: impl AsRef<str>) -> Self {
        Self::text(text).with("isError", true.into())
    }

    /// A structured result, and its JSON as text for clients that read no other.
    #[must_use]
    pub fn structured(value: Value) -> Self {
        Self::text(value.to_string()).with("structuredContent", value)
    }
}

impl ReadOutput {
    /// Content objects, each with `uri` and `text` or `blob`.
    #[must_use]
    pub fn contents(contents: Vec<Value>) -> Self {
        Self::result(object("contents", contents.into()))
    }

    /// One text.
    #[must_use]
    pub fn text(uri: &str, mime_type: &str, text: &str) -> Self {
        Self::contents(vec![
            json!({ "uri": uri, "mimeType": mime_type, "text": text }),
        ])
    }

    /// One binary content.
    #[must_use]
    pub fn blob(uri: &str, mime_type: &str, bytes: &[u8]) -> Self {
        use base64::Engine as _;
        let blob = base64::engine::general_purpose::STANDARD.encode(bytes);
        Self::contents(vec![
            json!({ "uri": uri, "mimeType": mime_type, "blob": blob }),
        ])
    }

    /// Lifetime and scope of this content; those of the resource catalog otherwise.
    #[must_use]
    pub const fn cached(mut self, ttl: Duration, scope: CacheScope) -> Self {
        self.hints = ReadHints {
            ttl: Some(ttl),
            scope: Some(scope),
        };
        self
    }
}

impl PromptOutput {
    /// Messages: `{"role": "user", "content": {…}}`.
    #[must_use]
    pub fn messages(messages: Vec<Value>) -> Self {
        Self::result(object("messages", messages.into()))
    }

    /// One text from the user.
    #[must_use]
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::messages(vec![
            json!({ "role": "user", "content": text_content(text.as_ref()) }),
        ])
    }

    /// What the prompt is for.
    #[must_use]
    pub fn description(self, text: impl Into<String>) -> Self {
        self.with("description", Value::String(text.into()))
    }
}

/// The most values that a completion carries.
pub const MAX_COMPLETIONS: usize = 100;

/// Suggestions for an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionOutput {
    values: Vec<String>,
    total: Option<usize>,
}

impl CompletionOutput {
    /// Suggestions, best first. The client gets [`MAX_COMPLETIONS`] of them and
    /// learns that there are more.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            values: values.into_iter().map(Into::into).collect(),
            total: None,
        }
    }

    /// How many there are altogether.
    #[must_use]
    pub const fn total(mut self, total: usize) -> Self {
        self.total = Some(total);
        self
    }

    pub(crate) fn into_result(mut self) -> Map<String, Value> {
        let total = self.total.unwrap_or(self.values.len());
        self.values.truncate(MAX_COMPLETIONS);
        let has_more = total > self.values.len();
        let completion = json!({ "values": self.values, "total": total, "hasMore": has_more });
        object("completion", completion)
    }
}

/// Adds what a modern result carries, and takes away what a legacy one does not.
pub(crate) fn finish(
    mut result: Map<String, Value>,
    modern: bool,
    server_info: &Value,
) -> Map<String, Value> {
    use relist_protocol::meta::key::SERVER_INFO;
    if !modern {
        for field in ["resultType", "ttlMs", "cacheScope"] {
            result.remove(field);
        }
        return result;
    }
    let mut finished = Map::new();
    finished.insert(
        "resultType".into(),
        result
            .remove("resultType")
            .unwrap_or_else(|| COMPLETE.into()),
    );
    let mut meta = match result.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        _ => Map::new(),
    };
    meta.insert(SERVER_INFO.into(), server_info.clone());
    finished.append(&mut result);
    finished.insert("_meta".into(), Value::Object(meta));
    finished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_are_cut_and_say_so() {
        let many = CompletionOutput::new((0..150).map(|n| n.to_string())).into_result();
        let completion = &many["completion"];
        assert_eq!(completion["values"].as_array().map(Vec::len), Some(100));
        assert_eq!(completion["total"], 150);
        assert_eq!(completion["hasMore"], true);
    }

    #[test]
    fn a_legacy_result_carries_none_of_the_modern_fields() {
        let result = || {
            let output = ToolOutput::text("x").with("ttlMs", 5.into());
            match output.outcome {
                Outcome::Result(map) => map,
                Outcome::Input(_) => panic!("a result"),
            }
        };
        let legacy = Value::Object(finish(result(), false, &json!({})));
        assert_eq!(legacy, json!({"content": [{"type": "text", "text": "x"}]}));
        let modern = finish(result(), true, &json!({"name": "s"}));
        assert_eq!(modern["resultType"], "complete");
        assert_eq!(
            modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "s"
        );
    }
}
