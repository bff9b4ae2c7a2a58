//! Which server is meant, and how a client behaves towards it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use relist_protocol::message::Implementation;
use relist_protocol::{Era, ProtocolVersion, RpcError, Switches};
use reqwest::Url;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The server that a client talks to.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// A Streamable HTTP endpoint.
    Http(Url),
    /// A program that speaks over its standard streams.
    Stdio(Command),
}

/// A program to start.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Command {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables set in addition to the environment of this process.
    pub env: BTreeMap<String, String>,
    /// The directory it starts in; `None` for that of this process.
    pub cwd: Option<PathBuf>,
}

impl fmt::Debug for Command {
    // The values of variables are often secrets; their names are not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// Why a text names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Not a URL.
    #[error("`{text}` is not a URL: {reason}")]
    NotAUrl {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A URL, but neither `http` nor `https`.
    #[error("`{scheme}:` is not a scheme that MCP is spoken over; use http or https")]
    Scheme {
        /// The scheme found.
        scheme: String,
    },
    /// A command without a program.
    #[error("the command is empty; write `-- program args`")]
    EmptyCommand,
}

impl Target {
    /// Reads the URL of a Streamable HTTP endpoint.
    ///
    /// # Errors
    ///
    /// [`TargetError`] when the text is no `http` or `https` URL.
    ///
    /// ```
    /// use relist_client::config::Target;
    /// let target = Target::http("https://example.com/mcp?key=secret")?;
    /// assert_eq!(target.to_string(), "https://example.com/mcp?…");
    /// # Ok::<(), relist_client::config::TargetError>(())
    /// ```
    pub fn http(text: &str) -> Result<Self, TargetError> {
        let mut url = Url::parse(text).map_err(|e| TargetError::NotAUrl {
            text: text.to_owned(),
            reason: e.to_string(),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme {
                scheme: url.scheme().to_owned(),
            });
        }
        url.set_fragment(None);
        Ok(Self::Http(url))
    }

    /// A program and its arguments.
    ///
    /// # Errors
    ///
    /// [`TargetError::EmptyCommand`] when there is no program.
    pub fn stdio<I, S>(words: I) -> Result<Self, TargetError>
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        let mut words = words.into_iter().map(Into::into);
        let program = words
            .next()
            .filter(|program: &String| !program.is_empty())
            .ok_or(TargetError::EmptyCommand)?;
        Ok(Self::Stdio(Command {
            program,
            args: words.collect(),
            ..Command::default()
        }))
    }

    /// Reads what follows a command's name: one URL, or `--` and a command.
    /// A single word that is no URL is a program without arguments.
    ///
    /// # Errors
    ///
    /// [`TargetError`] when the words name no server.
    pub fn parse(words: &[String]) -> Result<Self, TargetError> {
        match words {
            [marker, command @ ..] if marker == "--" => Self::stdio(command.iter().cloned()),
            [word] if word.contains("://") => Self::http(word),
            command => Self::stdio(command.iter().cloned()),
        }
    }

    /// The name under which verdicts about the server are remembered: the URL
    /// without query, or the whole command.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Http(url) => {
                let mut url = url.clone();
                url.set_query(None);
                let _ = url.set_password(None);
                url.to_string()
            }
            Self::Stdio(command) => format!("{:?} {:?}", command, command.cwd),
        }
    }
}

impl fmt::Display for Target {
    /// The server, for people and logs: credentials and query left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => {
                write!(
                    f,
                    "{}://{}",
                    url.scheme(),
                    url.host_str().unwrap_or_default()
                )?;
                if let Some(port) = url.port() {
                    write!(f, ":{port}")?;
                }
                f.write_str(url.path())?;
                if url.query().is_some() {
                    f.write_str("?…")?;
                }
                Ok(())
            }
            Self::Stdio(command) => {
                f.write_str(&command.program)?;
                for arg in &command.args {
                    write!(f, " {arg}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(_) => write!(f, "Http({self})"),
            Self::Stdio(command) => f.debug_tuple("Stdio").field(command).finish(),
        }
    }
}

/// Why a token is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenReason<'a> {
    /// Nothing was sent yet.
    First,
    /// The server refused the last token (401 or 403).
    Refused {
        /// The status: 401 or 403.
        status: u16,
        /// The challenge, where the server sent one.
        www_authenticate: Option<&'a str>,
    },
}

/// Why a provider has no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no token: {0}")]
pub struct TokenError(pub String);

/// Gives out bearer tokens. Asked once per connection, and once more whenever a
/// server refuses the last one; never in a loop.
pub trait TokenProvider: Send + Sync {
    /// A token; `None` to go without.
    fn token<'a>(
        &'a self,
        reason: TokenReason<'a>,
    ) -> BoxFuture<'a, Result<Option<String>, TokenError>>;
}

/// Answers what a server asks of its client: input from the user, a message
/// from a model, the roots. Both eras end here: requests on a stream (legacy)
/// and the input that a multi-round-trip result asks for (modern).
///
/// A handler declares in [`Self::capabilities`] what it answers.
pub trait ClientHandler: Send + Sync {
    /// What is answered, as client capabilities: for example
    /// `{"elicitation": {"form": {}}, "roots": {}}`.
    fn capabilities(&self) -> Map<String, Value>;

    /// `elicitation/create`: the result's `action` is `accept`, `decline` or
    /// `cancel`. Properties that an accepted answer leaves out get the defaults
    /// of the requested schema from the library.
    fn elicit(&self, params: Map<String, Value>) -> BoxFuture<'_, Result<Value, RpcError>> {
        let _ = params;
        Box::pin(async { Err(RpcError::method_not_found("elicitation/create")) })
    }

    /// `sampling/createMessage`.
    fn sample(&self, params: Map<String, Value>) -> BoxFuture<'_, Result<Value, RpcError>> {
        let _ = params;
        Box::pin(async { Err(RpcError::method_not_found("sampling/createMessage")) })
    }

    /// `roots/list`.
    fn roots(&self) -> BoxFuture<'_, Result<Value, RpcError>> {
        Box::pin(async { Err(RpcError::method_not_found("roots/list")) })
    }

    /// `notifications/message`. Called on the reading task: it must not block.
    fn log(&self, params: &RawValue) {
        let _ = params;
    }
}

/// How a client behaves. Every value has a default; the methods set one each.
///
/// ```
/// use relist_client::config::ClientConfig;
/// use std::time::Duration;
///
/// let config = ClientConfig::new("my-host", "1.0.0")
///     .request_timeout(Duration::from_secs(20))
///     .switches("conditional".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Name and version, told to every server.
    pub info: Implementation,
    /// The parts of the opt-in layer that are switched on. Default: none.
    pub switches: Switches,
    /// Capabilities declared besides those of [`Self::user_input`]. Default: none.
    pub capabilities: Map<String, Value>,
    /// The versions that may be spoken, most wanted first. Default: all, newest first.
    pub versions: Vec<ProtocolVersion>,
    /// How long a request waits without a sign of life (an answer, progress, or
    /// a question back). Default: 60 s.
    pub request_timeout: Duration,
    /// How long a request may take whatever signs of life there are. Default: 10 min.
    pub request_limit: Duration,
    /// How long a TCP and TLS connection may take to come up. Default: 10 s.
    pub connect_timeout: Duration,
    /// How long a program is given to answer `server/discover` before it is
    /// taken for a legacy server. Default: 5 s.
    pub probe_timeout: Duration,
    /// How long a program is given to end after its input was closed, and again
    /// after it was asked to terminate. Default: 2 s.
    pub shutdown_timeout: Duration,
    /// The largest HTTP answer, and the largest single event of a stream, after
    /// decompression. Default: 64 MiB.
    pub body_limit: usize,
    /// The longest line that a program may write. Default: 32 MiB.
    pub line_limit: usize,
    /// Whether compressed answers are asked for. Default: yes.
    pub accept_compression: bool,
    /// Whether `HTTP_PROXY` and its relatives are followed; never for loopback.
    /// Default: no.
    pub system_proxy: bool,
    /// Headers sent with every HTTP request. Their values are never printed, and
    /// they do not override the headers of the protocol. Default: none.
    pub headers: HeaderMap,
    /// Where bearer tokens come from. Default: none.
    pub token_provider: Option<Arc<dyn TokenProvider>>,
    /// Who answers what servers ask. Default: nobody.
    pub user_input: Option<Arc<dyn ClientHandler>>,
    /// How often one call may be sent back for more input. Default: 8.
    pub input_rounds: u32,
    /// How long a stream that has sent keep-alives may then stay silent before
    /// it is given up; never less than three times its longest pause so far.
    /// Default: 60 s.
    pub silence_limit: Duration,
}

impl ClientConfig {
    /// The defaults, under this name and version.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            info: Implementation::new(name, version),
            switches: Switches::NONE,
            capabilities: Map::new(),
            versions: ProtocolVersion::ALL.to_vec(),
            request_timeout: Duration::from_secs(60),
            request_limit: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(2),
            body_limit: 64 << 20,
            line_limit: 32 << 20,
            accept_compression: true,
            system_proxy: false,
            headers: HeaderMap::new(),
            token_provider: None,
            user_input: None,
            input_rounds: 8,
            silence_limit: Duration::from_secs(60),
        }
    }

    /// Sets [`Self::info`].
    #[must_use]
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Sets [`Self::switches`].
    #[must_use]
    pub fn switches(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    /// Declares one capability more.
    #[must_use]
    pub fn capability(mut self, name: impl Into<String>, settings: Value) -> Self {
        self.capabilities.insert(name.into(), settings);
        self
    }

    /// Sets [`Self::versions`].
    #[must_use]
    pub fn versions(mut self, versions: impl IntoIterator<Item = ProtocolVersion>) -> Self {
        self.versions = versions.into_iter().collect();
        self
    }

    /// Speaks the versions of one era only.
    #[must_use]
    pub fn only_era(mut self, era: Era) -> Self {
        self.versions.retain(|version| version.era() == era);
        self
    }

    /// Sets [`Self::request_timeout`].
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets [`Self::request_limit`].
    #[must_use]
    pub fn request_limit(mut self, limit: Duration) -> Self {
        self.request_limit = limit;
        self
    }

    /// Sets [`Self::connect_timeout`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets [`Self::probe_timeout`].
    #[must_use]
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe_timeout = timeout;
        self
    }

    /// Sets [`Self::shutdown_timeout`].
    #[must_use]
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Sets [`Self::body_limit`], in bytes.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Sets [`Self::line_limit`], in bytes.
    #[must_use]
    pub fn line_limit(mut self, bytes: usize) -> Self {
        self.line_limit = bytes;
        self
    }

    /// Sets [`Self::accept_compression`].
    #[must_use]
    pub fn accept_compression(mut self, accept: bool) -> Self {
        self.accept_compression = accept;
        self
    }

    /// Sets [`Self::system_proxy`].
    #[must_use]
    pub fn system_proxy(mut self, follow: bool) -> Self {
        self.system_proxy = follow;
        self
    }

    /// Sends one header more with every HTTP request.
    #[must_use]
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.append(name, value);
        self
    }

    /// Sets [`Self::token_provider`].
    #[must_use]
    pub fn token_provider(mut self, provider: Arc<dyn TokenProvider>) -> Self {
        self.token_provider = Some(provider);
        self
    }

    /// Sets [`Self::user_input`].
    #[must_use]
    pub fn user_input(mut self, handler: Arc<dyn ClientHandler>) -> Self {
        self.user_input = Some(handler);
        self
    }

    /// Sets [`Self::input_rounds`].
    #[must_use]
    pub fn input_rounds(mut self, rounds: u32) -> Self {
        self.input_rounds = rounds;
        self
    }

    /// Sets [`Self::silence_limit`].
    #[must_use]
    pub fn silence_limit(mut self, limit: Duration) -> Self {
        self.silence_limit = limit;
        self
    }

    /// The capabilities as they are declared, without those of the extension.
    pub(crate) fn declared_capabilities(&self) -> Map<String, Value> {
        let mut declared = self.capabilities.clone();
        if let Some(handler) = &self.user_input {
            declared.extend(handler.capabilities());
        }
        declared
    }

    /// The most wanted version of an era, if that era may be spoken.
    pub(crate) fn preferred(&self, era: Era) -> Option<ProtocolVersion> {
        self.versions.iter().copied().find(|v| v.era() == era)
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("info", &self.info)
            .field("switches", &self.switches)
            .field("versions", &self.versions)
            .field("request_timeout", &self.request_timeout)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("token_provider", &self.token_provider.is_some())
            .field("user_input", &self.user_input.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_never_prints_credentials() {
        let target =
            Target::http("https://me:hunter2@example.com:8443/mcp?key=s3cret#part").expect("a URL");
        for text in [target.to_string(), format!("{target:?}")] {
            assert!(text.contains("https://example.com:8443/mcp?…"), "{text}");
            assert!(
                !text.contains("hunter2") && !text.contains("s3cret"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_command_prints_the_names_of_its_variables_only() {
        let mut command = Command {
            program: "server".into(),
            ..Command::default()
        };
        command.env.insert("API_KEY".into(), "s3cret".into());
        let text = format!("{:?}", Target::Stdio(command));
        assert!(
            text.contains("API_KEY") && !text.contains("s3cret"),
            "{text}"
        );
    }

    #[test]
    fn a_url_and_a_command_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(matches!(
            Target::parse(&words("http://localhost:3000/mcp")),
            Ok(Target::Http(_))
        ));
        let Ok(Target::Stdio(command)) = Target::parse(&words("-- npx -y server")) else {
            panic!("a command");
        };
        assert_eq!((command.program.as_str(), command.args.len()), ("npx", 2));
        assert_eq!(Target::parse(&words("--")), Err(TargetError::EmptyCommand));
        assert!(matches!(
            Target::parse(&words("ftp://example.com")),
            Err(TargetError::Scheme { .. })
        ));
    }

    #[test]
    fn a_configuration_never_prints_header_values() {
        let config = ClientConfig::new("test", "0").header(
            http::header::AUTHORIZATION,
            HeaderValue::from_static("Bearer s3cret"),
        );
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
