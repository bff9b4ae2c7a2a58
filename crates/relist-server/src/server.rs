//! A running server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use relist_catalog::{Snapshot, tag_of_value};
use relist_protocol::extension::EXTENSION;
use relist_protocol::message::{Implementation, method};
use relist_protocol::meta::key;
use relist_protocol::{CatalogKind, ProtocolVersion, Switch, Switches};
use serde_json::{Map, Value, json};

use crate::builder::{Fallbacks, ServerBuilder};
use crate::catalogs::page::PageBody;
use crate::catalogs::{Catalogs, Commit, CommitError, Edit};
use crate::handler::CompletionHandler;
use crate::hints::{Hub, Lists};
use crate::options::CacheScope;

pub(crate) struct Inner {
    pub(crate) info: Value,
    pub(crate) instructions: Option<String>,
    pub(crate) switches: Switches,
    pub(crate) catalogs: Catalogs,
    pub(crate) hub: Hub,
    pub(crate) fallbacks: Fallbacks,
    pub(crate) completion: Option<CompletionHandler>,
    /// Whether the content of resources can be watched.
    pub(crate) watchable: bool,
    pub(crate) discovery: Arc<PageBody>,
}

/// A server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("info", &self.0.info)
            .field("switches", &self.0.switches)
            .finish_non_exhaustive()
    }
}

impl Inner {
    #[allow(clippy::too_many_arguments, reason = "called once, by the builder")]
    pub(crate) fn new(
        info: Implementation,
        instructions: Option<String>,
        switches: Switches,
        catalogs: Catalogs,
        hub: Hub,
        fallbacks: Fallbacks,
        completion: Option<CompletionHandler>,
        watchable: bool,
        discovery: (Duration, CacheScope),
    ) -> Self {
        let mut inner = Self {
            info: serde_json::to_value(info).unwrap_or_default(),
            instructions,
            switches,
            catalogs,
            hub,
            fallbacks,
            completion,
            watchable,
            discovery: Arc::new(PageBody::fixed(&Value::Null)),
        };
        inner.discovery = Arc::new(PageBody::fixed(&inner.discover(discovery)));
        inner
    }

    /// The lists that the server hints at.
    pub(crate) fn hinted(&self) -> Lists {
        CatalogKind::ALL
            .into_iter()
            .filter(|k| self.catalogs.options(*k).is_some_and(|o| o.list_changed))
            .fold(Lists::NONE, |set, kind| set.union(Lists::of(kind)))
    }

    /// What the server can do, without extensions.
    pub(crate) fn capabilities(&self) -> Map<String, Value> {
        let mut capabilities = Map::new();
        for kind in CatalogKind::ALL {
            if self.catalogs.options(kind).is_none() {
                continue;
            }
            let entry = capabilities
                .entry(kind.capability())
                .or_insert_with(|| json!({}));
            if !self.hinted().intersection(Lists::of(kind)).is_empty() {
                entry["listChanged"] = true.into();
            }
            if kind == CatalogKind::Resources && self.watchable {
                entry["subscribe"] = true.into();
            }
        }
        capabilities.insert("logging".into(), json!({}));
        if self.completion.is_some() {
            capabilities.insert("completions".into(), json!({}));
        }
        capabilities
    }

    fn discover(&self, (ttl, scope): (Duration, CacheScope)) -> Value {
        let mut capabilities = self.capabilities();
        if let Some(settings) = self.switches.settings() {
            capabilities.insert("extensions".into(), json!({ EXTENSION: settings }));
        }
        let versions = ProtocolVersion::ALL.map(ProtocolVersion::as_str);
        let mut described = json!({
            "supportedVersions": versions,
            "capabilities": capabilities,
        });
        if let Some(instructions) = &self.instructions {
            described["instructions"] = instructions.as_str().into();
        }
        let tag = tag_of_value(method::DISCOVER, &described);
        let mut result = json!({ "resultType": "complete" });
        if let (Some(result), Some(described)) = (result.as_object_mut(), described.as_object_mut())
        {
            result.append(described);
        }
        result["ttlMs"] = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).into();
        result["cacheScope"] = scope.as_str().into();
        if self.switches.contains(Switch::Tags) {
            result["tag"] = tag.as_str().into();
        }
        result["_meta"] = json!({ key::SERVER_INFO: self.info });
        result
    }
}

impl Server {
    /// Begins a server of this name and version.
    pub fn builder(info: Implementation) -> ServerBuilder {
        ServerBuilder::new(info)
    }

    /// Changes catalogs. Everything in one commit becomes visible at once, and
    /// is visible to every reader before anybody is told. Commits that are close
    /// together give one hint; one that changes nothing gives none.
    ///
    /// # Errors
    ///
    /// [`CommitError`], and then nothing has changed: a catalog that was not
    /// declared, a name that is there twice, or a definition that cannot be served.
    pub fn commit(&self, change: impl FnOnce(&mut Edit)) -> Result<Commit, CommitError> {
        let span = tracing::info_span!("commit", changed = tracing::field::Empty);
        let _entered = span.enter();
        let commit = self.0.catalogs.commit(change, |commit| {
            let hinted = commit
                .changed
                .iter()
                .map(|c| c.kind)
                .filter(|k| self.0.catalogs.options(*k).is_some_and(|o| o.list_changed))
                .fold(Lists::NONE, |set, kind| set.union(Lists::of(kind)));
            self.0.hub.changed(hinted);
        })?;
        let kinds: Vec<&str> = commit
            .changed
            .iter()
            .map(|c| c.kind.items_field())
            .collect();
        span.record("changed", kinds.join(","));
        for change in &commit.changed {
            tracing::debug!(
                catalog = %change.kind,
                before = change.before.len(),
                after = change.after.len(),
                "committed"
            );
        }
        Ok(commit)
    }

    /// What a catalog is now; empty for one that was not declared.
    #[must_use]
    pub fn snapshot(&self, kind: CatalogKind) -> Snapshot {
        match self.0.catalogs.state().version(kind) {
            Some(version) => version.snapshot.clone(),
            None => Snapshot::empty(kind),
        }
    }

    /// Whether the server has the catalog.
    #[must_use]
    pub fn has(&self, kind: CatalogKind) -> bool {
        self.0.catalogs.options(kind).is_some()
    }

    /// The parts of the opt-in layer that are on.
    #[must_use]
    pub fn switches(&self) -> Switches {
        self.0.switches
    }

    /// Tells those who watch it that the content of a resource changed.
    pub fn resource_updated(&self, uri: &str) {
        if self.0.watchable {
            self.0.hub.updated(uri);
        }
    }

    /// Ends every stream of notifications: what is pending is told, then each
    /// ends with a result. Requests are still answered.
    pub fn shutdown(&self) {
        self.0.hub.close();
    }
}
