//! Tools and prompts that cannot answer before the client has: what they ask
//! for, round by round. Nothing is kept here between the rounds; what has to be
//! remembered travels with the client, signed.

use serde_json::{Map, Value, json};

use crate::questions::{elicitation, sampling};
use crate::seal::Seal;

/// What a request brought back from the round before.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// `inputResponses`, by key.
    pub responses: Option<&'a Map<String, Value>>,
    /// `requestState`.
    pub state: Option<&'a str>,
    /// What the client declares with the request.
    pub capabilities: &'a Map<String, Value>,
}

/// How a round ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Round {
    /// More is needed.
    Ask {
        /// `inputRequests`, by key.
        requests: Map<String, Value>,
        /// `requestState`.
        state: Option<String>,
    },
    /// It was enough: the text of the answer.
    Done(String),
    /// The state is not the one that was given out.
    Tampered,
}

impl Given<'_> {
    /// An accepted elicitation's value.
    fn elicited(&self, key: &str, field: &str) -> Option<&Value> {
        self.responses?.get(key)?.get("content")?.get(field)
    }

    /// The text of a model's message.
    fn sampled(&self, key: &str) -> Option<&str> {
        self.responses?
            .get(key)?
            .get("content")?
            .get("text")?
            .as_str()
    }

    /// How many roots the client has.
    fn roots(&self, key: &str) -> Option<usize> {
        Some(self.responses?.get(key)?.get("roots")?.as_array()?.len())
    }
}

/// Runs one round of an item; `None` for an item that needs no input.
#[must_use]
pub fn round(name: &str, given: Given<'_>, seal: &Seal) -> Option<Round> {
    // A state is checked wherever one arrives, also where none was given out.
    let state = match given.state.map(|signed| seal.open(signed)) {
        None => None,
        Some(Some(state)) => Some(state),
        Some(None) => return Some(Round::Tampered),
    };
    let name = name.strip_prefix("test_input_required_result_")?;
    Some(match name {
        "elicitation" => match given.elicited("user_name", "name").and_then(Value::as_str) {
            Some(name) => Round::Done(format!("Hello, {name}!")),
            None => ask([("user_name", ask_name("What is your name?"))], None),
        },
        "sampling" => match given.sampled("capital_question") {
            Some(text) => Round::Done(text.to_owned()),
            None => {
                let question = sampling("What is the capital of France?", 100);
                ask(
                    [(
                        "capital_question",
                        request("sampling/createMessage", question),
                    )],
                    None,
                )
            }
        },
        "list_roots" => match given.roots("client_roots") {
            Some(count) => Round::Done(format!("The client has {count} roots.")),
            None => ask([("client_roots", request("roots/list", json!({})))], None),
        },
        "request_state" => confirm(given, state, seal, "confirmed", "state-ok"),
        "tampered_state" => confirm(given, state, seal, "sealed", "integrity-ok"),
        "multiple_inputs" => {
            let name = given.elicited("user_name", "name").and_then(Value::as_str);
            let greeting = given.sampled("greeting");
            let roots = given.roots("client_roots");
            match (name, greeting, roots, state) {
                (Some(name), Some(greeting), Some(roots), Some("multiple")) => {
                    Round::Done(format!("{greeting} {name} has {roots} roots."))
                }
                _ => {
                    let greeting = sampling("Generate a greeting", 50);
                    let requests = [
                        ("user_name", ask_name("What is your name?")),
                        ("greeting", request("sampling/createMessage", greeting)),
                        ("client_roots", request("roots/list", json!({}))),
                    ];
                    ask(requests, Some(seal.sign("multiple")))
                }
            }
        }
        "multi_round" => multi_round(given, state, seal),
        "capabilities" => capabilities(given, seal),
        "prompt" => match given
            .elicited("user_context", "context")
            .and_then(Value::as_str)
        {
            Some(context) => Round::Done(format!("The context is {context}.")),
            None => {
                let properties = json!({ "context": { "type": "string" } });
                let question = elicitation(
                    "What context should the prompt use?",
                    &properties,
                    &["context"],
                );
                ask(
                    [("user_context", request("elicitation/create", question))],
                    None,
                )
            }
        },
        _ => return None,
    })
}

fn confirm(given: Given<'_>, state: Option<&str>, seal: &Seal, kind: &str, text: &str) -> Round {
    if state == Some(kind) && given.elicited("confirm", "ok").is_some() {
        return Round::Done(text.to_owned());
    }
    let properties = json!({ "ok": { "type": "boolean" } });
    let question = elicitation("Please confirm", &properties, &["ok"]);
    let requests = [("confirm", request("elicitation/create", question))];
    ask(requests, Some(seal.sign(kind)))
}

/// Asks for a name and then for a color; the state of the second round holds
/// what the first one brought.
fn multi_round(given: Given<'_>, state: Option<&str>, seal: &Seal) -> Round {
    let color = given.elicited("step2", "color").and_then(Value::as_str);
    if let (Some(name), Some(color)) = (state.and_then(|s| s.strip_prefix("second:")), color) {
        return Round::Done(format!("{name} likes {color}."));
    }
    let name = given.elicited("step1", "name").and_then(Value::as_str);
    if let (Some("first"), Some(name)) = (state, name) {
        let properties = json!({ "color": { "type": "string" } });
        let question = elicitation(
            "Step 2: What is your favorite color?",
            &properties,
            &["color"],
        );
        let requests = [("step2", request("elicitation/create", question))];
        return ask(requests, Some(seal.sign(&format!("second:{name}"))));
    }
    let requests = [("step1", ask_name("Step 1: What is your name?"))];
    ask(requests, Some(seal.sign("first")))
}

/// Asks for nothing that the client did not declare.
fn capabilities(given: Given<'_>, seal: &Seal) -> Round {
    if given
        .responses
        .is_some_and(|responses| !responses.is_empty())
    {
        return Round::Done("capabilities-ok".to_owned());
    }
    let mut requests = Vec::new();
    if given.capabilities.contains_key("elicitation") {
        requests.push(("elicited", ask_name("What is your name?")));
    }
    if given.capabilities.contains_key("sampling") {
        let question = sampling("Say something", 50);
        requests.push(("sampled", request("sampling/createMessage", question)));
    }
    if requests.is_empty() {
        return Round::Done("The client can give nothing.".to_owned());
    }
    ask(requests, Some(seal.sign("capabilities")))
}

fn ask(requests: impl IntoIterator<Item = (&'static str, Value)>, state: Option<String>) -> Round {
    Round::Ask {
        requests: requests
            .into_iter()
            .map(|(key, request)| (key.to_owned(), request))
            .collect(),
        state,
    }
}

fn ask_name(message: &str) -> Value {
    let properties = json!({ "name": { "type": "string" } });
    request(
        "elicitation/create",
        elicitation(message, &properties, &["name"]),
    )
}

fn request(method: &str, params: Value) -> Value {
    json!({ "method": method, "params": params })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seal: &Seal, name: &str, responses: &Value, state: Option<&str>) -> Round {
        let capabilities = Map::from_iter([("sampling".to_owned(), json!({}))]);
        let given = Given {
            responses: responses.as_object(),
            state,
            capabilities: &capabilities,
        };
        round(&format!("test_input_required_result_{name}"), given, seal).expect("known")
    }

    fn asked(round: Round) -> (Vec<String>, Option<String>) {
        match round {
            Round::Ask { requests, state } => (requests.keys().cloned().collect(), state),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_missing_or_of_the_wrong_shape_is_asked_for_again() {
        let seal = Seal::default();
        for responses in [
            json!(null),
            json!({}),
            json!({ "wrong_key": { "action": "accept", "content": { "name": "A" } } }),
            json!({ "user_name": 12345 }),
            json!({ "user_name": { "action": "decline" } }),
        ] {
            let (keys, state) = asked(run(&seal, "elicitation", &responses, None));
            assert_eq!((keys, state), (vec!["user_name".to_owned()], None));
        }
    }

    #[test]
    fn keys_that_were_not_asked_for_are_ignored() {
        let responses = json!({
            "user_name": { "action": "accept", "content": { "name": "Alice" } },
            "other": { "action": "accept", "content": { "foo": "bar" } },
        });
        let round = run(&Seal::default(), "elicitation", &responses, None);
        assert_eq!(round, Round::Done("Hello, Alice!".to_owned()));
    }

    #[test]
    fn a_changed_state_is_refused() {
        let seal = Seal::default();
        let (_, state) = asked(run(&seal, "tampered_state", &json!(null), None));
        let state = state.expect("a state");
        let responses = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
        let changed = format!("{state}-TAMPERED");
        assert_eq!(
            run(&seal, "tampered_state", &responses, Some(&changed)),
            Round::Tampered
        );
        assert_eq!(
            run(&seal, "tampered_state", &responses, Some(&state)),
            Round::Done("integrity-ok".to_owned())
        );
    }

    #[test]
    fn the_second_round_remembers_the_first() {
        let seal = Seal::default();
        let (_, first) = asked(run(&seal, "multi_round", &json!(null), None));
        let responses = json!({ "step1": { "action": "accept", "content": { "name": "Alice" } } });
        let (keys, second) = asked(run(&seal, "multi_round", &responses, first.as_deref()));
        assert_eq!(keys, ["step2"]);
        assert_ne!(first, second);
        let responses = json!({ "step2": { "action": "accept", "content": { "color": "blue" } } });
        assert_eq!(
            run(&seal, "multi_round", &responses, second.as_deref()),
            Round::Done("Alice likes blue.".to_owned())
        );
    }

    #[test]
    fn nothing_is_asked_for_that_the_client_did_not_declare() {
        let (keys, _) = asked(run(&Seal::default(), "capabilities", &json!(null), None));
        assert_eq!(keys, ["sampled"]);
    }
}
