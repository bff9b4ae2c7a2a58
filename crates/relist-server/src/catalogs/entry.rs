//! What the server knows of an item beside its text.

use std::fmt;
use std::sync::Arc;

use relist_catalog::Item;
use relist_protocol::CatalogKind;
use serde_json::Value;

use super::CommitError;
use super::edit::Bound;
use crate::handler::{PromptHandler, ReadHandler, ToolHandler};
use crate::schema::ToolSchemas;
use crate::template::Template;

/// A tool: its schemas, and who answers.
pub(crate) struct ToolEntry {
    pub(crate) item: Item,
    pub(crate) schemas: Arc<ToolSchemas>,
    pub(crate) handler: Option<ToolHandler>,
}

/// A resource template.
pub(crate) struct TemplateEntry {
    item: Item,
    pub(crate) template: Template,
    pub(crate) handler: Option<ReadHandler>,
}

/// A prompt.
pub(crate) struct PromptEntry {
    item: Item,
    pub(crate) required: Vec<String>,
    pub(crate) handler: Option<PromptHandler>,
}

/// One item, as requests need it.
#[derive(Clone)]
pub(crate) enum Entry {
    Tool(Arc<ToolEntry>),
    Resource(Option<ReadHandler>),
    Template(Arc<TemplateEntry>),
    Prompt(Arc<PromptEntry>),
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tool(_) => "Tool",
            Self::Resource(_) => "Resource",
            Self::Template(_) => "Template",
            Self::Prompt(_) => "Prompt",
        })
    }
}

impl Entry {
    /// The entry of an item. What was known of the same text is taken over;
    /// the handler too, unless another one is given.
    pub(crate) fn new(
        kind: CatalogKind,
        item: &Item,
        bound: Option<Bound>,
        previous: Option<&Self>,
    ) -> Result<Self, CommitError> {
        let refused = |fault| CommitError::Definition {
            kind,
            key: item.key().to_string(),
            fault,
        };
        Ok(match kind {
            CatalogKind::Tools => {
                let previous = match previous {
                    Some(Self::Tool(tool)) => Some(tool),
                    _ => None,
                };
                let schemas = match previous.filter(|p| p.item.text() == item.text()) {
                    Some(same) => same.schemas.clone(),
                    None => Arc::new(ToolSchemas::compile(&item.value()).map_err(refused)?),
                };
                let handler = match bound {
                    Some(Bound::Tool(handler)) => Some(handler),
                    _ => previous.and_then(|p| p.handler.clone()),
                };
                Self::Tool(Arc::new(ToolEntry {
                    item: item.clone(),
                    schemas,
                    handler,
                }))
            }
            CatalogKind::Resources => Self::Resource(match (bound, previous) {
                (Some(Bound::Read(handler)), _) => Some(handler),
                (_, Some(Self::Resource(handler))) => handler.clone(),
                _ => None,
            }),
            CatalogKind::ResourceTemplates => {
                let previous = match previous {
                    Some(Self::Template(template)) => Some(template),
                    _ => None,
                };
                let template = match previous.filter(|p| p.item.key() == item.key()) {
                    Some(same) => same.template.clone(),
                    None => Template::parse(item.key().as_str()).map_err(refused)?,
                };
                let handler = match bound {
                    Some(Bound::Read(handler)) => Some(handler),
                    _ => previous.and_then(|p| p.handler.clone()),
                };
                Self::Template(Arc::new(TemplateEntry {
                    item: item.clone(),
                    template,
                    handler,
                }))
            }
            CatalogKind::Prompts => {
                let previous = match previous {
                    Some(Self::Prompt(prompt)) => Some(prompt),
                    _ => None,
                };
                let required = match previous.filter(|p| p.item.text() == item.text()) {
                    Some(same) => same.required.clone(),
                    None => required_arguments(&item.value()),
                };
                let handler = match bound {
                    Some(Bound::Prompt(handler)) => Some(handler),
                    _ => previous.and_then(|p| p.handler.clone()),
                };
                Self::Prompt(Arc::new(PromptEntry {
                    item: item.clone(),
                    required,
                    handler,
                }))
            }
        })
    }
}

fn required_arguments(prompt: &Value) -> Vec<String> {
    let arguments = prompt.get("arguments").and_then(Value::as_array);
    arguments
        .into_iter()
        .flatten()
        .filter(|a| a.get("required") == Some(&Value::Bool(true)))
        .filter_map(|a| a.get("name")?.as_str().map(str::to_owned))
        .collect()
}
