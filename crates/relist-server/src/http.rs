//! Streamable HTTP: both eras on one endpoint.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::State;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use relist_protocol::header::SESSION_ID;
use relist_protocol::jsonrpc::{self, Incoming, Message};
use relist_protocol::message::method;
use relist_protocol::meta::RequestMeta;
use relist_protocol::{Era, ProtocolVersion, RpcError};
use tokio::net::{TcpListener, TcpSocket};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate as _, SizeAbove};

use crate::options::HttpOptions;
use crate::server::Server;
use guard::Guard;
use respond::{EVENTS, JSON};
use session::Sessions;

mod guard;
mod headers;
mod legacy;
pub(crate) mod log;
mod modern;
mod respond;
mod session;

/// One endpoint.
#[derive(Debug)]
pub(crate) struct App {
    server: Server,
    options: HttpOptions,
    guard: Guard,
    sessions: Sessions,
    listening: AtomicUsize,
}

/// Connections that may wait to be accepted. The usual 128 is overrun when a
/// few hundred clients come back at once, and each that is turned away waits a
/// second before it tries again.
const BACKLOG: u32 = 4096;

/// A listener for [`Server::serve_http`] that stands a wave of reconnecting
/// clients: up to 4,096 connections wait to be accepted, where the system
/// allows as many.
///
/// # Errors
///
/// When the address is in use or not this machine's.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As the standard library does: a restarted server gets its port back.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Server {
    /// The endpoint as a router, to be served or nested. It takes itself to be
    /// reachable from this machine alone, and lets in local names only, unless
    /// the options list others.
    pub fn router(&self, options: HttpOptions) -> Router {
        self.router_for(options, true)
    }

    fn router_for(&self, options: HttpOptions, local: bool) -> Router {
        let path = format!("/{}", options.path.trim_start_matches('/'));
        let compression = options.compression;
        let app = Arc::new(App {
            server: self.clone(),
            guard: Guard::new(&options, local),
            sessions: Sessions::new(options.max_sessions, options.session_idle),
            listening: AtomicUsize::new(0),
            options,
        });
        let router = Router::new().route(&path, any(handle)).with_state(app);
        if !compression {
            return router;
        }
        // Pages bring their own compression, and streams have none: an event
        // must not wait in a compressor's window.
        let undecided = |_: StatusCode,
                         _: http::Version,
                         headers: &HeaderMap,
                         extensions: &http::Extensions| {
            extensions.get::<respond::Decided>().is_none()
                && headers.get(header::CONTENT_TYPE).is_some_and(|t| t == JSON)
        };
        let worthwhile = SizeAbove::new(512).and(undecided);
        router.layer(CompressionLayer::new().compress_when(worthwhile))
    }

    /// Serves the endpoint over HTTP/1.1 and HTTP/2 without TLS, until
    /// `shutdown` resolves. Then listen streams end with a result, connections
    /// finish what they are at, and what is still open when
    /// [`HttpOptions::drain`] is over is cut.
    ///
    /// # Errors
    ///
    /// When the listener fails.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        options: HttpOptions,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        use axum::serve::ListenerExt as _;
        let local = listener.local_addr()?.ip().is_loopback();
        let drain = options.drain;
        let router = self.router_for(options, local);
        let stopping = tokio_util::sync::CancellationToken::new();
        let (server, stop) = (self.clone(), stopping.clone());
        let listener = listener.tap_io(|stream| {
            // Small events should not wait for each other.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY");
            }
        });
        let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
            shutdown.await;
            server.shutdown();
            stop.cancel();
        });
        tokio::select! {
            served = serving => served,
            () = async {
                stopping.cancelled().await;
                tokio::time::sleep(drain).await;
            } => Ok(()),
        }
    }
}

async fn handle(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if let Some(reason) = app.guard.refusal(&parts.uri, &parts.headers) {
        let fault = RpcError::invalid_request(reason);
        return respond::error(StatusCode::FORBIDDEN, None, &fault);
    }
    match parts.method {
        Method::POST => post(&app, &parts.headers, body).await,
        Method::GET => legacy::get(&app, &parts.headers),
        Method::DELETE => legacy::delete(&app, &parts.headers),
        _ => respond::not_allowed("GET, POST, DELETE"),
    }
}

/// The body, or the response that refuses it.
async fn read_body(app: &App, body: Body) -> Result<Bytes, Response<Body>> {
    let limit = app.options.body_limit;
    let too_long = || {
        let fault = RpcError::invalid_request(format!(
            "Invalid Request: the body is longer than {limit} bytes"
        ));
        respond::error(StatusCode::PAYLOAD_TOO_LARGE, None, &fault)
    };
    // `Content-Length` says so already: nothing of it is waited for.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_long());
    }
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_long()),
        Err(error) => {
            let fault = RpcError::parse_error(format!("the body cannot be read: {error}"));
            Err(respond::error(StatusCode::BAD_REQUEST, None, &fault))
        }
    }
}

fn bad_request(id: Option<&jsonrpc::RequestId>, fault: &RpcError) -> Response<Body> {
    respond::error(StatusCode::BAD_REQUEST, id, fault)
}

async fn post(app: &Arc<App>, headers: &HeaderMap, body: Body) -> Response<Body> {
    if !headers::is_json(headers) {
        let fault = RpcError::invalid_request("the body has to be application/json, unencoded");
        return respond::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, &fault);
    }
    if !(headers::accepts(headers, JSON) && headers::accepts(headers, EVENTS)) {
        let fault = RpcError::invalid_request(
            "Not acceptable: the client has to accept application/json and text/event-stream",
        );
        return respond::error(StatusCode::NOT_ACCEPTABLE, None, &fault);
    }
    let bytes = match read_body(app, body).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    let incoming = match Incoming::parse(&bytes) {
        Ok(incoming) => incoming,
        Err(malformed) => return bad_request(malformed.id.as_ref(), &malformed.error),
    };
    drop(bytes);
    let stated = match headers::version(headers) {
        Ok(stated) => stated,
        Err(fault) => return bad_request(None, &fault),
    };
    let states_modern = stated
        .as_deref()
        .and_then(ProtocolVersion::parse)
        .is_some_and(|v| v.era() == Era::Modern);
    match incoming {
        Incoming::Single(Message::Request(request)) => {
            let meta = match RequestMeta::read(request.params.as_deref()) {
                Ok(meta) => meta,
                Err(fault) => return bad_request(Some(&request.id), &fault),
            };
            let modern_method = [method::DISCOVER, method::LISTEN].contains(&&*request.method);
            let has_session = headers.contains_key(SESSION_ID);
            if meta.is_modern() || states_modern || (modern_method && !has_session) {
                modern::request(app, headers, request, meta).await
            } else if request.method == method::INITIALIZE {
                legacy::initialize(app, &request)
            } else {
                legacy::post(app, headers, vec![Ok(Message::Request(request))], false).await
            }
        }
        // No notification of a client means anything here in the modern era.
        Incoming::Single(Message::Notification(_))
            if states_modern && !headers.contains_key(SESSION_ID) =>
        {
            respond::empty(StatusCode::ACCEPTED)
        }
        Incoming::Single(message) => legacy::post(app, headers, vec![Ok(message)], false).await,
        Incoming::Batch(messages) => legacy::post(app, headers, messages, true).await,
    }
}
