//! An HTTP server that writes exactly the bytes it is told to: for answers that
//! no library would send.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use relist_client::config::{ClientConfig, Target};
use relist_client::connection::{Connection, EraCache};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub verb: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
    pub at: Instant,
}

impl Seen {
    /// The JSON-RPC method, or the HTTP one where there is no message.
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.verb)
    }

    pub fn id(&self) -> Value {
        self.body["id"].clone()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What is done in answer; the connection is closed at the end.
pub enum Part {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// Waits until the client has gone.
    Hold,
}

pub type Answer = Vec<Part>;

/// A server on a free port, and what it has seen.
pub struct RawServer {
    pub address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    gone: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl RawServer {
    pub async fn start(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let gone: Arc<Mutex<usize>> = Arc::default();
        let answer = Arc::new(answer);
        let (log, left) = (Arc::clone(&seen), Arc::clone(&gone));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, left, answer) =
                    (Arc::clone(&log), Arc::clone(&left), Arc::clone(&answer));
                tokio::spawn(async move { serve(stream, &log, &left, &*answer).await });
            }
        });
        Self {
            address,
            seen,
            gone,
            task,
        }
    }

    pub fn target(&self) -> Target {
        Target::http(&format!("http://{}/mcp", self.address)).unwrap()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn methods(&self) -> Vec<String> {
        self.seen().iter().map(|s| s.method().to_owned()).collect()
    }

    pub fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|m| *m == method).count()
    }

    /// Waits until a request of that method was seen.
    pub async fn saw(&self, method: &str) -> Seen {
        eventually(|| self.seen().into_iter().find(|s| s.method() == method)).await
    }

    /// Waits until a held client has gone.
    pub async fn client_gone(&self) {
        eventually(|| (*self.gone.lock().unwrap() > 0).then_some(())).await;
    }

    pub async fn open(&self, config: ClientConfig) -> Connection {
        Connection::open(&self.target(), Arc::new(config), &EraCache::new())
            .await
            .unwrap()
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Looks again and again until there is something, for at most 20 seconds.
pub async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Seen>>,
    gone: &Mutex<usize>,
    answer: &(dyn Fn(&Seen, usize) -> Answer + Send + Sync),
) {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (verb, path) = (
        first.next().unwrap_or_default().to_owned(),
        first.next().unwrap_or_default().to_owned(),
    );
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .and_then(|l| l.parse().ok())
        .unwrap_or(0);
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let seen = Seen {
        verb,
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        at: Instant::now(),
    };
    let nth = {
        let mut log = log.lock().unwrap();
        log.push(seen.clone());
        log.iter().filter(|s| s.method() == seen.method()).count()
    };
    for part in answer(&seen, nth) {
        match part {
            Part::Bytes(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
                let _ = stream.flush().await;
            }
            Part::Pause(pause) => tokio::time::sleep(pause).await,
            Part::Hold => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.unwrap_or(0) > 0 {}
                *gone.lock().unwrap() += 1;
                return;
            }
        }
    }
    let _ = stream.shutdown().await;
}

/// A complete response.
pub fn http(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut text = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    vec![Part::Bytes([text.as_bytes(), body].concat())]
}

pub fn json_body(status: u16, body: &Value) -> Answer {
    http(
        status,
        &[("content-type", "application/json")],
        body.to_string().as_bytes(),
    )
}

pub fn result(seen: &Seen, result: Value) -> Answer {
    json_body(
        200,
        &json!({"jsonrpc": "2.0", "id": seen.id(), "result": result}),
    )
}

pub fn error(seen: &Seen, status: u16, code: i64, message: &str, data: Value) -> Answer {
    let mut error = json!({"code": code, "message": message});
    if !data.is_null() {
        error["data"] = data;
    }
    json_body(
        status,
        &json!({"jsonrpc": "2.0", "id": seen.id(), "error": error}),
    )
}

/// The head of an event stream that ends with the connection.
pub fn events(body: &str) -> Vec<Part> {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";
    vec![Part::Bytes(format!("{head}{body}").into_bytes())]
}

pub fn discovered(seen: &Seen) -> Answer {
    result(
        seen,
        json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}},
            "ttlMs": 0, "cacheScope": "private"
        }),
    )
}

pub fn initialized(seen: &Seen) -> Answer {
    let body = json!({"jsonrpc": "2.0", "id": seen.id(), "result": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "raw", "version": "1"}
    }});
    http(
        200,
        &[
            ("content-type", "application/json"),
            ("mcp-session-id", "session-1"),
        ],
        body.to_string().as_bytes(),
    )
}

/// A modern server that answers everything but `server/discover` so.
pub async fn modern(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> RawServer {
    RawServer::start(move |seen, nth| match seen.method() {
        "server/discover" => discovered(seen),
        _ => answer(seen, nth),
    })
    .await
}

/// A legacy server that answers everything but the handshake so.
pub async fn legacy(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> RawServer {
    RawServer::start(move |seen, nth| match seen.method() {
        "server/discover" => http(400, &[], b"Bad Request"),
        "initialize" => initialized(seen),
        "notifications/initialized" => http(202, &[], b""),
        _ => answer(seen, nth),
    })
    .await
}

pub fn config() -> ClientConfig {
    ClientConfig::new("test", "0").request_timeout(Duration::from_secs(20))
}

pub fn params(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
