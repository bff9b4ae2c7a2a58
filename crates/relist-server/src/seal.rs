//! State that goes through the client and comes back unaltered, or is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use relist_catalog::tag_of_value;
use relist_protocol::RpcError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

use crate::context::Context;

/// Seals `requestState` with HMAC-SHA-256, an expiry, and the request that it
/// belongs to: method and parameters, without what a retry adds. It is
/// readable by the client, and it may come back more than once within its
/// lifetime; what must happen once only has to be remembered by the server.
#[derive(Clone)]
pub struct StateSeal {
    key: [u8; 32],
    lifetime: Duration,
}

impl std::fmt::Debug for StateSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSeal")
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    /// Seconds since 1970.
    until: u64,
    request: String,
    state: Value,
}

fn refused() -> RpcError {
    RpcError::invalid_params("Invalid params: `requestState` is not valid for this request")
}

impl StateSeal {
    /// A seal with a key of the operator's: every replica needs the same.
    #[must_use]
    pub const fn new(key: [u8; 32], lifetime: Duration) -> Self {
        Self { key, lifetime }
    }

    /// A seal with a key of its own, for a server that runs once.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers.
    pub fn random(lifetime: Duration) -> std::io::Result<Self> {
        Ok(Self::new(random()?, lifetime))
    }

    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        // The longer key types only fail on lengths, and HMAC takes any.
        #[allow(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length");
        mac.update(payload);
        mac
    }

    fn request(context: &Context) -> String {
        let mut params: Value = serde_json::from_str(context.0.params.get()).unwrap_or_default();
        if let Some(params) = params.as_object_mut() {
            for added in ["_meta", "inputResponses", "requestState"] {
                params.remove(added);
            }
        }
        tag_of_value(context.method(), &params).as_str().to_owned()
    }

    fn now() -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs())
    }

    /// Seals a state for the request of the context.
    ///
    /// # Errors
    ///
    /// `-32603` when the state cannot be written as JSON.
    pub fn seal(&self, context: &Context, state: &impl Serialize) -> Result<String, RpcError> {
        let internal = |e: serde_json::Error| RpcError::internal(e.to_string());
        let payload = serde_json::to_vec(&Sealed {
            until: Self::now().saturating_add(self.lifetime.as_secs()),
            request: Self::request(context),
            state: serde_json::to_value(state).map_err(internal)?,
        })
        .map_err(internal)?;
        let mac = self.mac(&payload).finalize().into_bytes();
        Ok(format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(&payload),
            URL_SAFE_NO_PAD.encode(mac)
        ))
    }

    /// Opens the state that the request brought; `None` when it brought none.
    ///
    /// # Errors
    ///
    /// `-32602` when it is forged, too old, or of another request.
    pub fn open<T: DeserializeOwned>(&self, context: &Context) -> Result<Option<T>, RpcError> {
        let Some(text) = context.request_state() else {
            return Ok(None);
        };
        let (payload, mac) = text.split_once('.').ok_or_else(refused)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| refused())?;
        let mac = URL_SAFE_NO_PAD.decode(mac).map_err(|_| refused())?;
        self.mac(&payload)
            .verify_slice(&mac)
            .map_err(|_| refused())?;
        let sealed: Sealed = serde_json::from_slice(&payload).map_err(|_| refused())?;
        if Self::now() > sealed.until || sealed.request != Self::request(context) {
            return Err(refused());
        }
        serde_json::from_value(sealed.state)
            .map(Some)
            .map_err(|_| refused())
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Input, Outbound, Parts};
    use relist_protocol::{ProtocolVersion, message::to_raw};
    use serde_json::json;

    fn context(params: &Value, state: Option<String>) -> Context {
        Context::new(Parts {
            version: ProtocolVersion::V2026_07_28,
            id: 1.into(),
            method: "tools/call".into(),
            params: to_raw(params).expect("JSON").into(),
            meta: relist_protocol::meta::RequestMeta::default(),
            input: Input {
                input_responses: None,
                request_state: state,
            },
            cancelled: tokio_util::sync::CancellationToken::new(),
            outbound: Outbound::Channel(tokio::sync::mpsc::channel(1).0),
            peer: None,
        })
    }

    #[test]
    fn sealed_state_comes_back_and_nothing_else_does() {
        let seal = StateSeal::new([7; 32], Duration::from_secs(60));
        let params = json!({"name": "t", "arguments": {"a": 1, "b": 2}});
        let sealed = seal
            .seal(&context(&params, None), &json!({"step": 2}))
            .expect("sealed");
        // A retry adds fields, and may write the others in another order.
        let retry = json!({"arguments": {"b": 2, "a": 1}, "name": "t",
            "requestState": sealed, "inputResponses": {}, "_meta": {"x": 1}});
        let open = |seal: &StateSeal, params: &Value, text: &str| {
            seal.open::<Value>(&context(params, Some(text.to_owned())))
        };
        assert_eq!(open(&seal, &retry, &sealed), Ok(Some(json!({"step": 2}))));
        assert_eq!(seal.open::<Value>(&context(&params, None)), Ok(None));

        let code = |r: Result<Option<Value>, RpcError>| r.expect_err("refused").code;
        for forged in [
            format!("{sealed}x"),
            sealed.replacen('.', "", 1),
            "x".into(),
            String::new(),
        ] {
            assert_eq!(code(open(&seal, &retry, &forged)), -32602);
        }
        let other = json!({"name": "t", "arguments": {"a": 1, "b": 3}});
        assert_eq!(code(open(&seal, &other, &sealed)), -32602);
        let foreign = StateSeal::new([8; 32], Duration::from_secs(60));
        assert_eq!(code(open(&foreign, &retry, &sealed)), -32602);
    }
}
