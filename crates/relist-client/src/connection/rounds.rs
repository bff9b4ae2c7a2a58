//! Multi-round-trip requests: a result that asks for more input is answered by
//! sending the request again, with the input.
//!
//! Specification: [multi round-trip requests](https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr).

use relist_protocol::Era;
use relist_protocol::extension::INPUT_REQUIRED;
use relist_protocol::message::{method, to_raw};
use relist_protocol::object;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ask::Answer;
use super::outgoing::RequestOptions;
use super::{Connection, input};
use crate::error::RequestError;

/// The most questions that one `input_required` result may hold.
const MAX_INPUT_REQUESTS: usize = 64;

/// A result that asks for more input.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired {
    #[serde(default)]
    input_requests: Option<Map<String, Value>>,
    /// Opaque: given back as it came.
    #[serde(default)]
    request_state: Option<String>,
}

#[derive(Deserialize)]
struct InputRequest {
    method: String,
    #[serde(default)]
    params: Map<String, Value>,
}

/// Sends a request as often as the server asks for more input.
pub(super) async fn call(
    connection: &Connection,
    method: &str,
    params: Map<String, Value>,
    options: RequestOptions,
) -> Result<Answer, RequestError> {
    let (mut sent, mut received, mut on_wire) = (0, 0, 0);
    let mut round_params = params.clone();
    let rounds = connection.inner.core.config.input_rounds;
    for _ in 0..=rounds {
        let mut answer = connection
            .request(method, round_params, options.clone())
            .await?;
        sent += answer.bytes_sent;
        received += answer.bytes_received;
        on_wire += answer.bytes_on_wire;
        if connection.era() == Era::Legacy
            || answer.result_type().as_deref() != Some(INPUT_REQUIRED)
        {
            answer.bytes_sent = sent;
            answer.bytes_received = received;
            answer.bytes_on_wire = on_wire;
            return Ok(answer);
        }
        let wanted: InputRequired = answer.read()?;
        round_params = params.clone();
        // What belongs to an earlier round, or to another call, is not said
        // again: only what this result asks for.
        round_params.remove("inputResponses");
        round_params.remove("requestState");
        if let Some(requests) = wanted.input_requests {
            let responses = tokio::select! {
                responses = inputs(connection, requests) => responses?,
                () = options.cancel.cancelled() => return Err(RequestError::Cancelled),
                () = connection.inner.core.closed() => return Err(connection.inner.core.closed_error()),
            };
            round_params.insert("inputResponses".to_owned(), responses.into());
        } else if wanted.request_state.is_none() {
            return Err(RequestError::Malformed {
                reason: "`input_required` with neither `inputRequests` nor `requestState`"
                    .to_owned(),
            });
        }
        if let Some(state) = wanted.request_state {
            round_params.insert("requestState".to_owned(), state.into());
        }
    }
    Err(RequestError::TooManyRounds { rounds })
}

async fn inputs(
    connection: &Connection,
    requests: Map<String, Value>,
) -> Result<Map<String, Value>, RequestError> {
    if requests.len() > MAX_INPUT_REQUESTS {
        return Err(RequestError::Malformed {
            reason: format!("more than {MAX_INPUT_REQUESTS} questions in one result"),
        });
    }
    let mut responses = Map::new();
    for (name, request) in requests {
        let request: InputRequest = object::read(request).map_err(|e| RequestError::Malformed {
            reason: format!("`inputRequests[{name:?}]`: {e}"),
        })?;
        let unavailable = |reason: String| RequestError::InputUnavailable {
            method: request.method.clone(),
            reason,
        };
        if request.method == method::PING {
            return Err(unavailable("it is no input".to_owned()));
        }
        let params = to_raw(&request.params).map_err(|e| unavailable(e.to_string()))?;
        let config = &connection.inner.core.config;
        let response = input::answer(config, &request.method, Some(&params))
            .await
            .map_err(|e| unavailable(e.message))?;
        responses.insert(name, response);
    }
    Ok(responses)
}
