//! The four lists: pages of one version, and "what you have is what there is".

use std::sync::Arc;

use relist_protocol::extension::EXTENSION;
use relist_protocol::meta::MAX_KNOWN_TAGS;
use relist_protocol::{CatalogKind, RpcError, Switch, Switches};
use serde::Deserialize;
use serde_json::Value;

use crate::catalogs::page::{Form, PageBody};
use crate::dispatch::{Inbound, Reply};
use crate::server::Server;

#[derive(Deserialize)]
struct ListParams {
    #[serde(default)]
    cursor: Option<String>,
}

impl Server {
    pub(crate) fn list(&self, inbound: &Inbound, kind: CatalogKind) -> Result<Reply, RpcError> {
        let state = self.0.catalogs.state();
        let (Some(current), Some(options)) = (state.version(kind), self.0.catalogs.options(kind))
        else {
            return Ok(inbound.not_found());
        };
        let form = if inbound.modern() {
            Form::Modern {
                server_info: &self.0.info,
                tags: self.0.switches.contains(Switch::Tags),
            }
        } else {
            Form::Legacy
        };
        let ListParams { cursor } = inbound.params()?;
        let (version, position) = match cursor {
            Some(cursor) => self
                .0
                .catalogs
                .resolve(kind, &cursor)
                .map_err(|e| RpcError::invalid_params(format!("Invalid cursor: {e}")))?,
            None => {
                if self.asks_conditionally(inbound)
                    && knows(inbound, kind, current.snapshot.tag().as_str())
                {
                    let page = PageBody::not_modified(&current.snapshot, options, &self.0.info);
                    return Ok(Reply::Page(Arc::new(page)));
                }
                (current.clone(), 0)
            }
        };
        Ok(Reply::Page(version.page(position, options, form)))
    }

    /// Whether both sides have `conditional` on.
    fn asks_conditionally(&self, inbound: &Inbound) -> bool {
        inbound.modern()
            && self.0.switches.contains(Switch::Conditional)
            && inbound.meta.extension(EXTENSION).is_some_and(|settings| {
                Switches::from_settings(settings).contains(Switch::Conditional)
            })
    }
}

/// Whether the client says that it has the version that the tag names.
fn knows(inbound: &Inbound, kind: CatalogKind, tag: &str) -> bool {
    #[derive(Deserialize, Default)]
    struct Params {
        #[serde(default, rename = "_meta")]
        meta: Meta,
    }
    #[derive(Deserialize, Default)]
    struct Meta {
        #[serde(default, rename = "experimental.relist/lists")]
        ours: Option<Value>,
    }
    let known = inbound.meta.known_tags.get(kind.list_method());
    if known.is_some_and(|known| known == tag) {
        return true;
    }
    let params: Params = inbound.params().unwrap_or_default();
    params
        .meta
        .ours
        .as_ref()
        .and_then(|ours| ours.get("known")?.as_array())
        .is_some_and(|known| known.iter().take(MAX_KNOWN_TAGS).any(|t| t == tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_our_request_field_is_the_extension() {
        // An attribute cannot name a constant.
        assert_eq!(EXTENSION, "experimental.relist/lists");
    }
}
