//! What the server remembers of one legacy client, whatever the transport.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use relist_protocol::jsonrpc::{Request, RequestId, Response};
use relist_protocol::message::Implementation;
use relist_protocol::meta::LogLevel;
use relist_protocol::{ProtocolVersion, RpcError};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::hints::{Registration, lock};

/// Resources that one client may watch at one time.
pub(crate) const MAX_WATCHED: usize = 1024;

/// Questions to one client that wait for an answer at one time.
const MAX_QUESTIONS: usize = 256;

type Answer = Result<Box<RawValue>, RpcError>;

const LEVELS: [LogLevel; 8] = [
    LogLevel::Debug,
    LogLevel::Info,
    LogLevel::Notice,
    LogLevel::Warning,
    LogLevel::Error,
    LogLevel::Critical,
    LogLevel::Alert,
    LogLevel::Emergency,
];

/// A legacy client, from `initialize` to the end of its session.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) version: ProtocolVersion,
    pub(crate) client_info: Implementation,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) hints: Registration,
    level: AtomicU8,
    next_question: AtomicI64,
    questions: Mutex<HashMap<RequestId, oneshot::Sender<Answer>>>,
    running: Mutex<HashMap<RequestId, CancellationToken>>,
}

impl Peer {
    pub(crate) fn new(
        version: ProtocolVersion,
        client_info: Implementation,
        capabilities: Map<String, Value>,
        hints: Registration,
    ) -> Self {
        Self {
            version,
            client_info,
            capabilities,
            hints,
            level: AtomicU8::new(LogLevel::Info as u8),
            next_question: AtomicI64::new(1),
            questions: Mutex::default(),
            running: Mutex::default(),
        }
    }

    pub(crate) fn level(&self) -> LogLevel {
        LEVELS[usize::from(self.level.load(Ordering::Relaxed)).min(LEVELS.len() - 1)]
    }

    pub(crate) fn set_level(&self, level: LogLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// A question for the client, and where its answer arrives.
    pub(crate) fn question(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> Result<(Request, Question<'_>), RpcError> {
        let id = RequestId::Number(self.next_question.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        let mut questions = lock(&self.questions);
        if questions.len() >= MAX_QUESTIONS {
            return Err(RpcError::internal("too many questions wait for the client"));
        }
        questions.insert(id.clone(), sender);
        let request = Request {
            id: id.clone(),
            method: method.to_owned(),
            params,
        };
        Ok((
            request,
            Question {
                peer: self,
                id,
                receiver,
            },
        ))
    }

    /// The client answers; answers to nothing are dropped.
    pub(crate) fn answer(&self, response: Response) {
        let Some(id) = response.id else { return };
        match lock(&self.questions).remove(&id) {
            Some(waiting) => drop(waiting.send(response.outcome)),
            None => tracing::debug!(%id, "an answer to no question of ours"),
        }
    }

    /// Notes that a request runs; `None` when its id is taken.
    pub(crate) fn begin(self: &Arc<Self>, id: &RequestId) -> Option<Running> {
        let mut running = lock(&self.running);
        if running.contains_key(id) {
            return None;
        }
        let token = CancellationToken::new();
        running.insert(id.clone(), token.clone());
        Some(Running {
            peer: self.clone(),
            id: id.clone(),
            token,
        })
    }

    pub(crate) fn is_busy(&self) -> bool {
        !lock(&self.running).is_empty()
    }

    /// The client gives a request up.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(token) = lock(&self.running).get(id) {
            token.cancel();
        }
    }

    pub(crate) fn cancel_all(&self) {
        for token in lock(&self.running).values() {
            token.cancel();
        }
    }
}

/// A question that waits; forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    peer: &'a Peer,
    id: RequestId,
    receiver: oneshot::Receiver<Answer>,
}

impl Question<'_> {
    pub(crate) async fn answered(mut self) -> Answer {
        let answer = (&mut self.receiver).await;
        answer.unwrap_or_else(|_| Err(RpcError::internal("the client is gone")))
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        lock(&self.peer.questions).remove(&self.id);
    }
}

/// A request that runs; no longer listed when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    peer: Arc<Peer>,
    id: RequestId,
    pub(crate) token: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.peer.running).remove(&self.id);
    }
}
