//! How the command line names a server.

use std::sync::Arc;

use clap::Args;
use http::{HeaderName, HeaderValue};
use relist_client::config::{ClientConfig, Target};
use relist_protocol::Switches;

use crate::connect::Failed;

/// A server, and how to meet it.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// Switches of the opt-in layer, separated by commas: tags, conditional, all.
    #[arg(long, default_value = "none")]
    enable: Switches,
    /// A header for every HTTP request, for example `Authorization: Bearer …`; may be repeated.
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The server's URL.
    #[arg(
        value_name = "URL",
        required_unless_present = "command",
        conflicts_with = "command"
    )]
    url: Option<String>,
    /// A command that starts the server on its standard input and output.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("a header is written `NAME: VALUE`")?;
    let name = HeaderName::try_from(name.trim()).map_err(|e| e.to_string())?;
    let value = HeaderValue::try_from(value.trim()).map_err(|e| e.to_string())?;
    Ok((name, value))
}

impl At {
    /// The server of this URL, met with nothing switched on.
    pub(crate) fn url(url: String) -> Self {
        Self {
            enable: Switches::NONE,
            header: Vec::new(),
            url: Some(url),
            command: Vec::new(),
        }
    }

    /// The server behind this command, met with nothing switched on.
    pub(crate) fn command(command: Vec<String>) -> Self {
        Self {
            enable: Switches::NONE,
            header: Vec::new(),
            url: None,
            command,
        }
    }

    pub(crate) fn target(&self) -> Result<Target, Failed> {
        Ok(match &self.url {
            Some(url) if url.contains("://") => Target::http(url)?,
            Some(word) => return Err(Failed::NoUrl(word.clone())),
            None => Target::stdio(self.command.iter().cloned())?,
        })
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let config = ClientConfig::new("relist", env!("CARGO_PKG_VERSION")).switches(self.enable);
        let headers = self.header.iter().cloned();
        Arc::new(headers.fold(config, |c, (name, value)| c.header(name, value)))
    }
}
