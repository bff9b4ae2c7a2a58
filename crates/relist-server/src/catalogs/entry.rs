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
                if handler.is_some() {
                    schemas.check_root().map_err(refused)?;
                }
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

#[cfg(test)]
mod tests {
    use relist_protocol::message::Implementation;
    use relist_protocol::{CatalogKind, RpcError};
    use serde_json::json;

    use crate::{Context, Server, ToolCall, ToolOutput};

    async fn answer(_: ToolCall, _: Context) -> Result<ToolOutput, RpcError> {
        Ok(ToolOutput::text("done"))
    }

    /// Published servers have listed tools like this one.
    #[test]
    fn a_root_that_names_no_type_is_served_as_it_is_unless_it_has_a_handler() {
        let tool = json!({"name": "t", "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#"}});
        let builder = || Server::builder(Implementation::new("s", "1"));
        let error = builder()
            .tool(tool.clone(), answer)
            .build()
            .expect_err("refused");
        assert!(error.to_string().contains("\"t\""), "{error}");
        let item = relist_catalog::Item::from_value(CatalogKind::Tools, &tool).expect("an item");
        let server = builder()
            .item(CatalogKind::Tools, &item)
            .build()
            .expect("served as it is");
        assert_eq!(server.snapshot(CatalogKind::Tools).items(), [item]);
        server
            .commit(|c| c.upsert_tool(tool, answer))
            .expect_err("a handler needs a whole definition");
    }
}
