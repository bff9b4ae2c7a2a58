//! Notifications, as a client reads them.

use relist_protocol::extension::EXTENSION;
use relist_protocol::jsonrpc::{Notification, RequestId};
use relist_protocol::message::{ListenFilter, method};
use relist_protocol::meta::key;
use relist_protocol::object;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::hints::HintedList;

/// Progress of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// How far it is; grows.
    pub progress: f64,
    /// How far it will go, if the server knows.
    pub total: Option<f64>,
    /// One sentence for a person.
    pub message: Option<String>,
}

/// A notification that means something to this client.
#[derive(Debug)]
pub(crate) enum Notice {
    Changed {
        list: HintedList,
        tag: Option<String>,
    },
    Updated {
        uri: String,
    },
    Acknowledged {
        granted: ListenFilter,
    },
    Cancelled {
        request: RequestId,
    },
    Progress {
        token: RequestId,
        progress: Progress,
    },
    Log(Box<RawValue>),
}

/// A notification and the subscription that it says it belongs to.
#[derive(Debug)]
pub(crate) struct Notified {
    pub(crate) notice: Notice,
    pub(crate) subscription: Option<RequestId>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Params {
    #[serde(default, rename = "_meta")]
    meta: Option<Value>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default, deserialize_with = "object::read_some")]
    notifications: Option<ListenFilter>,
    #[serde(default)]
    request_id: Option<RequestId>,
    #[serde(default)]
    progress_token: Option<RequestId>,
    #[serde(default)]
    progress: Option<f64>,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

impl Notified {
    /// Reads a notification; `None` for one that is unknown or malformed.
    pub(crate) fn read(notification: Notification) -> Option<Self> {
        let Notification { method, params } = notification;
        if method == method::LOG {
            return Some(Self {
                notice: Notice::Log(params?),
                subscription: None,
            });
        }
        let list = HintedList::from_notification(&method);
        let params = match (&params, list) {
            (None, _) => Params::default(),
            (Some(raw), _) => match serde_json::from_str::<Params>(raw.get()) {
                Ok(params) => params,
                // A hint is a hint, whatever else stands in it.
                Err(_) if list.is_some() => Params::default(),
                Err(error) => {
                    tracing::warn!(%method, %error, "a malformed notification was skipped");
                    return None;
                }
            },
        };
        let subscription = params
            .meta
            .as_ref()
            .and_then(|meta| meta.get(key::SUBSCRIPTION_ID))
            .and_then(|id| serde_json::from_value(id.clone()).ok());
        let notice = match method.as_str() {
            _ if list.is_some() => Notice::Changed {
                list: list?,
                tag: params
                    .meta
                    .as_ref()
                    .and_then(|meta| meta.get(EXTENSION)?.get("tag")?.as_str())
                    .map(str::to_owned),
            },
            method::RESOURCE_UPDATED => Notice::Updated { uri: params.uri? },
            method::ACKNOWLEDGED => Notice::Acknowledged {
                granted: params.notifications.unwrap_or_default(),
            },
            method::CANCELLED => Notice::Cancelled {
                request: params.request_id?,
            },
            method::PROGRESS => Notice::Progress {
                token: params.progress_token?,
                progress: Progress {
                    progress: params.progress?,
                    total: params.total,
                    message: params.message,
                },
            },
            _ => {
                tracing::debug!(%method, "an unknown notification was skipped");
                return None;
            }
        };
        Some(Self {
            notice,
            subscription,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(method: &str, params: &Value) -> Option<Notified> {
        Notified::read(Notification {
            method: method.to_owned(),
            params: (!params.is_null())
                .then(|| RawValue::from_string(params.to_string()).expect("JSON")),
        })
    }

    #[test]
    fn a_hint_is_a_hint_with_or_without_parameters() {
        for params in [
            json!(null),
            json!({}),
            json!({"_meta": 7}),
            json!({"progress": "what"}),
        ] {
            let notified = read("notifications/tools/list_changed", &params);
            assert!(
                matches!(
                    notified.map(|n| n.notice),
                    Some(Notice::Changed {
                        list: HintedList::Tools,
                        tag: None
                    })
                ),
                "{params}"
            );
        }
    }

    #[test]
    fn a_subscription_id_is_read_as_number_or_string() {
        let id = |value: Value| {
            read(
                "notifications/resources/list_changed",
                &json!({"_meta": {key::SUBSCRIPTION_ID: value}}),
            )
            .and_then(|n| n.subscription)
        };
        assert_eq!(id(json!(4)), Some(RequestId::Number(4)));
        assert_eq!(id(json!(4.0)), Some(RequestId::Number(4)));
        assert_eq!(id(json!("4")), Some("4".into()));
        assert_eq!(id(json!(null)), None);
    }

    #[test]
    fn an_announced_version_is_read() {
        let notified = read(
            "notifications/prompts/list_changed",
            &json!({"_meta": {EXTENSION: {"tag": "sha256:C"}}}),
        );
        assert!(matches!(
            notified.map(|n| n.notice),
            Some(Notice::Changed { tag: Some(tag), .. }) if tag == "sha256:C"
        ));
    }

    #[test]
    fn what_is_unknown_or_malformed_is_skipped() {
        assert!(read("notifications/future", &json!({})).is_none());
        assert!(read("notifications/resources/updated", &json!({"uri": 7})).is_none());
        assert!(read("notifications/progress", &json!({"progress": 1})).is_none());
    }
}
