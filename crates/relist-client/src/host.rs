//! The host's side: what the model is given, and when.
//!
//! A refreshed copy that the model never sees is the fault that users report.
//! So a host works in turns: a turn begins with a list of tools that stays the
//! same until the next one, and each list that was handed out is on record.

mod names;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use relist_catalog::{Change, EntityTag, Item, Snapshot};
use relist_freshness::catalog::Need;
use relist_protocol::CatalogKind;
use serde_json::{Map, Value};

use crate::call::{CallError, CallOptions};
use crate::client::Client;
use crate::connection::Answer;

/// A tool as the model is given it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelTool {
    /// The name for the model: letters, digits, `_` and `-`, at most 64, and
    /// different from every other tool's.
    pub public_name: String,
    /// The tool, under its own name.
    pub item: Item,
}

/// The tools of one turn, in a stable order, with the version they came from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolList {
    /// The tools, sorted by public name.
    pub tools: Vec<ModelTool>,
    /// The tag of the content: the same whatever order the server lists in.
    pub version: EntityTag,
    /// Tools that were left out, each with the reason.
    pub left_out: Vec<(String, String)>,
}

impl ToolList {
    fn of(items: &[&Item], rejected: &[(String, String)], version: EntityTag) -> Self {
        let (tools, repeated) = names::assign(items);
        let mut left_out = rejected.to_vec();
        left_out.extend(repeated);
        Self {
            tools,
            version,
            left_out,
        }
    }

    /// The tool of a public name.
    #[must_use]
    pub fn get(&self, public_name: &str) -> Option<&ModelTool> {
        self.tools
            .binary_search_by(|t| t.public_name.as_str().cmp(public_name))
            .ok()
            .map(|at| &self.tools[at])
    }

    /// The block that goes into the model's context: canonical, so that the
    /// same tools give the same bytes and prompt caches hold.
    #[must_use]
    pub fn block(&self) -> String {
        let tools: Vec<String> = self
            .tools
            .iter()
            .map(|tool| {
                if tool.public_name == tool.item.key().as_str() {
                    return tool.item.canonical_text();
                }
                let mut value = tool.item.value();
                if let Value::Object(map) = &mut value {
                    map.insert("name".to_owned(), tool.public_name.clone().into());
                }
                Item::from_value(CatalogKind::Tools, &value)
                    .map_or_else(|_| value.to_string(), |item| item.canonical_text())
            })
            .collect();
        format!("[{}]", tools.join(","))
    }
}

/// One list of tools that was handed to the model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AdoptionRecord {
    /// The turn, counted from one.
    pub turn: u64,
    /// The version.
    pub version: EntityTag,
    /// Whether it differs from the turn before.
    pub is_new: bool,
    /// How many tools the model was given.
    pub tools: usize,
    /// When.
    pub at: SystemTime,
}

/// A turn of the model.
#[derive(Debug)]
#[non_exhaustive]
pub struct Turn {
    /// The number of the turn, counted from one.
    pub number: u64,
    /// The tools of the turn.
    pub tools: ToolList,
    /// What changed since the last turn, on one line; `None` if nothing did.
    pub note: Option<String>,
    /// Why the tools may be out of date, if they may.
    pub stale: Option<String>,
    client: Client,
}

/// Adoption records kept.
const KEPT: usize = 1024;

/// Hands the tools of one server to a model, turn by turn.
#[derive(Debug)]
pub struct Host {
    client: Client,
    turns: u64,
    last: Option<Snapshot>,
    adoptions: VecDeque<AdoptionRecord>,
    patience: Duration,
}

impl Host {
    /// A host for the client's server.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            turns: 0,
            last: None,
            adoptions: VecDeque::new(),
            patience: Duration::from_secs(10),
        }
    }

    /// How long the beginning of a turn waits for a stale catalog (default 10 s).
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Begins a turn: the newest tools, revalidated if they were stale. When
    /// that fails, the last good ones, and [`Turn::stale`] says why. A server
    /// that offers no tools, or refused the credentials, gives none.
    pub async fn begin_turn(&mut self) -> Turn {
        self.turns += 1;
        let handle = self.client.catalog(CatalogKind::Tools);
        let stale = match handle {
            Some(handle) => handle
                .fresh(Need::Turn, self.patience)
                .await
                .err()
                .map(|e| e.to_string()),
            None => Some("the client keeps no tools".to_owned()),
        };
        let withdrawn = handle.is_none_or(|h| h.status().unavailable.is_some());
        let view = handle.and_then(crate::handle::CatalogHandle::view);
        let snapshot = match &view {
            Some(view) if !withdrawn => view.snapshot.clone(),
            _ => Snapshot::empty(CatalogKind::Tools),
        };
        let tools = match &view {
            Some(view) if !withdrawn => {
                let items: Vec<&Item> = view.items().collect();
                let rejected: Vec<(String, String)> = view
                    .rejected
                    .iter()
                    .map(|(k, r)| (k.to_string(), r.clone()))
                    .collect();
                ToolList::of(&items, &rejected, snapshot.tag().clone())
            }
            _ => ToolList::of(&[], &[], snapshot.tag().clone()),
        };
        let note = self.last.as_ref().and_then(|last| note(last, &snapshot));
        let is_new = self
            .last
            .as_ref()
            .is_none_or(|last| !last.same_content(&snapshot));
        if self.adoptions.len() == KEPT {
            self.adoptions.pop_front();
        }
        self.adoptions.push_back(AdoptionRecord {
            turn: self.turns,
            version: tools.version.clone(),
            is_new,
            tools: tools.tools.len(),
            at: SystemTime::now(),
        });
        tracing::info!(
            turn = self.turns,
            version = %tools.version,
            tools = tools.tools.len(),
            is_new,
            "tools handed to the model"
        );
        self.last = Some(snapshot);
        Turn {
            number: self.turns,
            tools,
            note,
            stale,
            client: self.client.clone(),
        }
    }

    /// The newest 1,024 lists that were handed out, oldest first.
    #[must_use]
    pub fn adoptions(&self) -> Vec<AdoptionRecord> {
        self.adoptions.iter().cloned().collect()
    }
}

/// What a model may be told about a change; a new order is not worth a word.
fn note(before: &Snapshot, after: &Snapshot) -> Option<String> {
    let mut change = Change::between(before, after);
    change.reordered = false;
    (!change.is_empty()).then(|| format!("The available tools changed: {change}."))
}

impl Turn {
    /// Calls a tool by its public name. A tool that was not given to the model
    /// this turn, or that has gone since, is refused before anything is sent.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn call(
        &self,
        public_name: &str,
        arguments: Map<String, Value>,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let Some(tool) = self.tools.get(public_name) else {
            return Err(CallError::Gone {
                noun: CatalogKind::Tools.noun(),
                name: public_name.to_owned(),
            });
        };
        self.client
            .call_tool(tool.item.key().as_str(), arguments, options)
            .await
    }
}
