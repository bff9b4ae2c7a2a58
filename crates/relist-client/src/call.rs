//! Calls against a copy of the catalog: what is checked before a request is
//! sent, and what is checked of its answer.

use std::time::Duration;

use relist_catalog::{Item, ItemKey, Snapshot};
use relist_freshness::catalog::{Need, Phase};
use relist_protocol::error::code;
use relist_protocol::param_header::{ParamHeaderError, param_headers};
use relist_protocol::{CatalogKind, Era};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::client::Client;
use crate::connection::{Answer, RequestOptions};
use crate::error::RequestError;

/// Why a call was not made, or has no usable result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The catalog, verified just now, has no such item. Nothing was sent.
    #[error(
        "the server no longer offers the {noun} {name:?}; begin a new turn to see what it offers"
    )]
    Gone {
        /// The word for the item.
        noun: &'static str,
        /// Its name.
        name: String,
    },
    /// The item must not be used. Nothing was sent.
    #[error("the tool {name:?} must not be used: {reason}")]
    Rejected {
        /// The tool.
        name: String,
        /// Why.
        reason: String,
    },
    /// There is no connection. Nothing was sent.
    #[error("there is no connection to the server: {reason}")]
    NotConnected {
        /// The last failure.
        reason: String,
    },
    /// The request failed. It is not repeated: it may have run.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The structured result is not what the tool's `outputSchema` promises.
    #[error("the result of the tool {name:?} breaks its output schema: {reason}")]
    Output {
        /// The tool.
        name: String,
        /// Where and why.
        reason: String,
    },
}

/// How a call is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallOptions {
    /// How long a stale catalog may take to become fresh first (default 10 s).
    /// When it does not, the copy decides, and the server after it.
    pub revalidate: Duration,
    /// Passed on to the request.
    pub request: RequestOptions,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            revalidate: Duration::from_secs(10),
            request: RequestOptions::default(),
        }
    }
}

/// Tools whose `x-mcp-header` annotations break a rule, each with the reason.
pub(crate) fn illegal_tools(tools: &Snapshot) -> Vec<(ItemKey, String)> {
    let illegal: Vec<(ItemKey, String)> = tools
        .items()
        .iter()
        // Most tools have no annotation, and parsing them all would cost more
        // than reading the list.
        .filter(|tool| tool.text().contains("x-mcp-header"))
        .filter_map(|tool| {
            let reason = header_names(tool).err()?;
            Some((tool.key().clone(), reason.to_string()))
        })
        .collect();
    for (name, reason) in &illegal {
        tracing::warn!(tool = %name, %reason, "a tool is left out");
    }
    illegal
}

fn header_names(
    tool: &Item,
) -> Result<Vec<relist_protocol::param_header::ParamHeader>, ParamHeaderError> {
    if !tool.text().contains("x-mcp-header") {
        return Ok(Vec::new());
    }
    tool.value()
        .get("inputSchema")
        .map_or(Ok(Vec::new()), param_headers)
}

fn mirrored(tool: &Item, arguments: &Map<String, Value>) -> Vec<(String, String)> {
    header_names(tool)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|header| {
            let value = header.value_in(arguments)?;
            Some((header.name, value))
        })
        .collect()
}

impl Client {
    /// Calls a tool.
    ///
    /// A stale catalog is revalidated first. A call is never repeated by
    /// itself, with one exception that ran nothing: a server that misses a
    /// mirrored parameter refuses the request, the tools are listed again, and
    /// the call is sent once more.
    ///
    /// # Errors
    ///
    /// [`CallError`]. A tool that reports a failure of its own is no error:
    /// its result says `isError`.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let tool = self.usable(CatalogKind::Tools, name, &options).await?;
        match self
            .send_call(name, &arguments, tool.as_ref(), &options)
            .await
        {
            Err(CallError::Request(RequestError::Rpc(e))) if e.code == code::HEADER_MISMATCH => {
                if let Some(tools) = self.catalog(CatalogKind::Tools) {
                    // Without news the second attempt fails like the first.
                    let _ = tools.refresh(options.revalidate).await;
                }
                let tool = self.usable(CatalogKind::Tools, name, &options).await?;
                self.send_call(name, &arguments, tool.as_ref(), &options)
                    .await
            }
            other => other,
        }
    }

    async fn send_call(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        tool: Option<&Item>,
        options: &CallOptions,
    ) -> Result<Answer, CallError> {
        let mut params = Map::new();
        params.insert("name".to_owned(), name.into());
        params.insert("arguments".to_owned(), arguments.clone().into());
        let mut request = options.request.clone();
        if let Some(tool) = tool {
            request.param_headers = mirrored(tool, arguments);
        }
        let answer = self.exchange("tools/call", params, request).await?;
        if let Some(tool) = tool {
            check_output(name, tool, &answer.result)?;
        }
        Ok(answer)
    }

    /// Reads a resource. A template may stand behind a URI that is not listed,
    /// so only the server can tell that there is none.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn read_resource(
        &self,
        uri: &str,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        let mut params = Map::new();
        params.insert("uri".to_owned(), uri.into());
        self.exchange("resources/read", params, options.request)
            .await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        options: CallOptions,
    ) -> Result<Answer, CallError> {
        self.usable(CatalogKind::Prompts, name, &options).await?;
        let mut params = Map::new();
        params.insert("name".to_owned(), name.into());
        params.insert("arguments".to_owned(), arguments.into());
        self.exchange("prompts/get", params, options.request).await
    }

    /// Sends any request, with the answers to the server's questions.
    pub(crate) async fn exchange(
        &self,
        method: &str,
        params: Map<String, Value>,
        mut options: RequestOptions,
    ) -> Result<Answer, CallError> {
        let (epoch, connection) = self.connection().await?;
        if connection.era() == Era::Modern {
            options.known_tags = self.known_tags();
        }
        let result = connection.call_with_input(method, params, options).await;
        if result.as_ref().is_err_and(RequestError::ends_connection) {
            self.report_broken(epoch).await;
        }
        Ok(result?)
    }

    /// The item as the copy has it, after the copy was revalidated if need be.
    /// `None` where there is no copy to decide by.
    async fn usable(
        &self,
        kind: CatalogKind,
        name: &str,
        options: &CallOptions,
    ) -> Result<Option<Item>, CallError> {
        let Some(catalog) = self.catalog(kind) else {
            return Ok(None);
        };
        // A failed revalidation leaves the old copy, and the server decides.
        let verified = catalog.fresh(Need::Call, options.revalidate).await.is_ok();
        let Some(view) = catalog.view() else {
            return Ok(None);
        };
        if let Some((_, reason)) = view.rejected.iter().find(|(k, _)| k.as_str() == name) {
            return Err(CallError::Rejected {
                name: name.to_owned(),
                reason: reason.clone(),
            });
        }
        match view.get(name) {
            Some(item) => Ok(Some(item.clone())),
            None if verified || catalog.status().phase == Phase::Fresh => Err(CallError::Gone {
                noun: kind.noun(),
                name: name.to_owned(),
            }),
            None => Ok(None),
        }
    }
}

/// Checks a structured result. A schema that refers to the network, or that is
/// no schema, cannot be checked: that is said, and the result passed on.
fn check_output(name: &str, tool: &Item, result: &RawValue) -> Result<(), CallError> {
    let definition = tool.value();
    let Some(schema) = definition.get("outputSchema") else {
        return Ok(());
    };
    let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
    if result.get("isError") == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let Some(content) = result.get("structuredContent") else {
        return Ok(());
    };
    match jsonschema::validator_for(schema) {
        Ok(validator) => validator.validate(content).map_err(|e| CallError::Output {
            name: name.to_owned(),
            reason: format!("{e} at {}", e.instance_path()),
        }),
        Err(error) => {
            tracing::warn!(tool = name, %error, "the output schema cannot be used");
            Ok(())
        }
    }
}
