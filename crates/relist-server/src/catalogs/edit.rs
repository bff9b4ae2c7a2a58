//! A commit in the making.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use relist_catalog::{Item, SnapshotEdit};
use relist_protocol::CatalogKind;
use serde_json::Value;

use super::{CommitError, Entries, Entry, State, Version, item};
use crate::handler::{
    Handler, PromptCall, PromptHandler, ReadCall, ReadHandler, ToolCall, ToolHandler,
};
use crate::output::{PromptOutput, ReadOutput, ToolOutput};

/// Who answers for an item.
pub(crate) enum Bound {
    Tool(ToolHandler),
    Read(ReadHandler),
    Prompt(PromptHandler),
}

struct Draft {
    edit: SnapshotEdit,
    entries: Entries,
    base: Arc<Version>,
}

/// Changes to several catalogs that become visible together, or not at all.
///
/// The first thing that goes wrong makes the commit fail; what follows it is
/// not looked at.
pub struct Edit {
    before: Arc<State>,
    drafts: BTreeMap<CatalogKind, Draft>,
    fault: Option<CommitError>,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edit")
            .field("touched", &self.drafts.keys().collect::<Vec<_>>())
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Edit {
    pub(crate) const fn begin(before: Arc<State>) -> Self {
        Self {
            before,
            drafts: BTreeMap::new(),
            fault: None,
        }
    }

    fn attempt(&mut self, act: impl FnOnce(&mut Self) -> Result<(), CommitError>) {
        if self.fault.is_none()
            && let Err(fault) = act(self)
        {
            self.fault = Some(fault);
        }
    }

    fn draft(&mut self, kind: CatalogKind) -> Result<&mut Draft, CommitError> {
        let base = self
            .before
            .version(kind)
            .ok_or(CommitError::NotDeclared(kind))?;
        Ok(self.drafts.entry(kind).or_insert_with(|| Draft {
            edit: base.snapshot.edit(),
            entries: base.entries.clone(),
            base: base.clone(),
        }))
    }

    fn put(
        &mut self,
        kind: CatalogKind,
        item: Item,
        bound: Option<Bound>,
    ) -> Result<(), CommitError> {
        let draft = self.draft(kind)?;
        let previous = draft.entries.get(item.key().as_str());
        let entry = Entry::new(kind, &item, bound, previous)?;
        draft.entries.insert(item.key().clone(), entry);
        draft.edit.upsert(item);
        Ok(())
    }

    pub(crate) fn bind(&mut self, kind: CatalogKind, value: &Value, bound: Option<Bound>) {
        self.attempt(|edit| edit.put(kind, item(kind, value)?, bound));
    }

    /// Adds a tool, or replaces the one of its name in its place.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "reads as `json!({…})` at the call"
    )]
    pub fn upsert_tool(&mut self, tool: Value, handler: impl Handler<ToolCall, ToolOutput>) {
        self.bind(
            CatalogKind::Tools,
            &tool,
            Some(Bound::Tool(Arc::new(handler))),
        );
    }

    /// Adds a resource, or replaces the one of its URI in its place.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "reads as `json!({…})` at the call"
    )]
    pub fn upsert_resource(
        &mut self,
        resource: Value,
        handler: impl Handler<ReadCall, ReadOutput>,
    ) {
        let bound = Bound::Read(Arc::new(handler));
        self.bind(CatalogKind::Resources, &resource, Some(bound));
    }

    /// Adds a resource template, or replaces the one of its template in its place.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "reads as `json!({…})` at the call"
    )]
    pub fn upsert_resource_template(
        &mut self,
        template: Value,
        handler: impl Handler<ReadCall, ReadOutput>,
    ) {
        let bound = Bound::Read(Arc::new(handler));
        self.bind(CatalogKind::ResourceTemplates, &template, Some(bound));
    }

    /// Adds a prompt, or replaces the one of its name in its place.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "reads as `json!({…})` at the call"
    )]
    pub fn upsert_prompt(
        &mut self,
        prompt: Value,
        handler: impl Handler<PromptCall, PromptOutput>,
    ) {
        let bound = Bound::Prompt(Arc::new(handler));
        self.bind(CatalogKind::Prompts, &prompt, Some(bound));
    }

    /// Adds an item, or replaces the one of its name in its place. A handler
    /// that the name has stays; a new item is answered by the fallback.
    pub fn upsert(&mut self, kind: CatalogKind, item: Item) {
        self.attempt(|edit| edit.put(kind, item, None));
    }

    /// Removes an item and its handler; answers whether there was one.
    pub fn remove(&mut self, kind: CatalogKind, key: &str) -> bool {
        let mut removed = false;
        self.attempt(|edit| {
            let draft = edit.draft(kind)?;
            draft.entries.remove(key);
            removed = draft.edit.remove(key);
            Ok(())
        });
        removed
    }

    /// Replaces a whole catalog, order included. Names that stay keep their handlers.
    pub fn replace(&mut self, kind: CatalogKind, items: Vec<Item>) {
        self.attempt(|edit| {
            let draft = edit.draft(kind)?;
            let mut entries = Entries::with_capacity(items.len());
            for item in &items {
                let previous = draft.entries.get(item.key().as_str());
                let entry = Entry::new(kind, item, None, previous)?;
                entries.insert(item.key().clone(), entry);
            }
            draft.entries = entries;
            draft.edit.replace_all(items);
            Ok(())
        });
    }

    /// The names of a catalog, as the edit has it so far.
    #[must_use]
    pub fn contains(&self, kind: CatalogKind, key: &str) -> bool {
        match self.drafts.get(&kind) {
            Some(draft) => draft.entries.contains_key(key),
            None => self.before.entry(kind, key).is_some(),
        }
    }

    pub(super) fn finish(self) -> Result<Vec<(CatalogKind, Version)>, CommitError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.drafts
            .into_iter()
            .map(|(kind, draft)| {
                let snapshot = draft.edit.finish()?;
                Ok((kind, Version::next(&draft.base, snapshot, draft.entries)))
            })
            .collect()
    }
}
