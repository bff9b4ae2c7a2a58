//! Listen streams: what is granted, and what travels on them.

use std::collections::BTreeSet;

use bytes::Bytes;
use relist_protocol::jsonrpc::RequestId;
use relist_protocol::message::{ListenFilter, ListenParams, method};
use relist_protocol::meta::key;
use relist_protocol::{CatalogKind, RpcError};
use serde_json::{Value, json};

use crate::dispatch::{Inbound, MAX_URI, id_value};
use crate::hints::{Hint, Lists, Registration};
use crate::peer::MAX_WATCHED;
use crate::server::Server;

/// A subscription that has been taken, and is yet to be acknowledged.
#[derive(Debug)]
pub(crate) struct Subscription {
    id: RequestId,
    granted: ListenFilter,
    info: Value,
    /// `None` when nothing was granted: then it ends at once.
    pub(crate) hints: Option<Registration>,
}

impl Server {
    /// Takes a subscription: from here on no commit is lost to it.
    pub(crate) fn subscribe(&self, inbound: &Inbound) -> Result<Subscription, RpcError> {
        if !self.has_hints() {
            return Err(RpcError::method_not_found(method::LISTEN));
        }
        let ListenParams { notifications } = inbound.params()?;
        let mut granted = ListenFilter::default();
        for kind in CatalogKind::ALL {
            let hinted = !self.0.hinted().intersection(Lists::of(kind)).is_empty();
            granted.set(kind, hinted && notifications.wants(kind));
        }
        let mut watched = BTreeSet::new();
        if self.0.watchable {
            for uri in notifications.resource_subscriptions {
                if watched.len() < MAX_WATCHED
                    && uri.len() <= MAX_URI
                    && watched.insert(uri.clone())
                {
                    granted.resource_subscriptions.push(uri);
                }
            }
        }
        let hints =
            (!granted.is_empty()).then(|| self.0.hub.register(Lists::wanted(&granted), watched));
        Ok(Subscription {
            id: inbound.request.id.clone(),
            granted,
            info: self.0.info.clone(),
            hints,
        })
    }
}

fn notification(method: &str, params: &Value) -> Bytes {
    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    message.to_string().into()
}

/// A hint as a legacy client gets it.
pub(crate) fn legacy_hint(hint: &Hint) -> Bytes {
    match hint {
        Hint::List(kind) => json!({ "jsonrpc": "2.0", "method": kind.changed_notification() })
            .to_string()
            .into(),
        Hint::Resource(uri) => notification(method::RESOURCE_UPDATED, &json!({ "uri": uri })),
    }
}

impl Subscription {
    fn meta(&self) -> Value {
        json!({ key::SUBSCRIPTION_ID: id_value(&self.id) })
    }

    /// The first message.
    pub(crate) fn acknowledgment(&self) -> Bytes {
        let params = json!({ "_meta": self.meta(), "notifications": self.granted });
        notification(method::ACKNOWLEDGED, &params)
    }

    pub(crate) fn hint(&self, hint: &Hint) -> Bytes {
        match hint {
            Hint::List(kind) => notification(
                kind.changed_notification(),
                &json!({ "_meta": self.meta() }),
            ),
            Hint::Resource(uri) => notification(
                method::RESOURCE_UPDATED,
                &json!({ "_meta": self.meta(), "uri": uri }),
            ),
        }
    }

    /// The last message: the server ends the subscription, gracefully.
    pub(crate) fn end(&self) -> Bytes {
        let mut meta = self.meta();
        meta[key::SERVER_INFO] = self.info.clone();
        let result = json!({ "resultType": "complete", "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": id_value(&self.id), "result": result })
            .to_string()
            .into()
    }
}
