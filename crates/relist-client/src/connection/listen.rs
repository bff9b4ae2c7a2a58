//! The streams on which a server tells of changes: `subscriptions/listen`
//! (modern), the GET stream (legacy), or the pipe itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use relist_protocol::Era;
use relist_protocol::jsonrpc::{Incoming, Message, RequestId, Response};
use relist_protocol::message::ListenFilter;
use tokio::time::Instant;

use super::exchange::{Bookmark, HttpSide, error_in, message_of};
use super::hints::{Board, HintEnd};
use super::notice::{Notice, Notified};
use super::outgoing::Outgoing;
use super::subscription::Subscription;
use crate::error::{RequestError, excerpt};
use crate::transport::http::{Reply, Verb};
use crate::transport::sse::{self, EventDecoder};

/// How often in a row a legacy stream is resumed without having brought a
/// message, before whoever reads the hints is told that it is lost.
const FRUITLESS_RESUMES: u32 = 10;

fn lost(reason: impl Into<String>) -> HintEnd {
    HintEnd::Lost {
        reason: reason.into(),
        retry_after: None,
    }
}

/// The end that an error means for a stream.
pub(crate) fn end_of(error: RequestError) -> HintEnd {
    match error {
        RequestError::Unauthorized { www_authenticate } => {
            HintEnd::Unauthorized { www_authenticate }
        }
        RequestError::Forbidden { excerpt, .. } => HintEnd::Forbidden { excerpt },
        RequestError::SessionGone => HintEnd::SessionGone,
        RequestError::Rpc(error) => HintEnd::Refused(error),
        RequestError::Closed { reason } => HintEnd::Closed { reason },
        RequestError::RetryAfter { after, .. } => HintEnd::Lost {
            reason: error.to_string(),
            retry_after: Some(after),
        },
        error => lost(error.to_string()),
    }
}

/// Finds out that a stream went silent. Only a stream that has sent keep-alives
/// can be missed: a server need not send any.
struct Silence {
    limit: Duration,
    last: Instant,
    longest: Duration,
    keeps_alive: bool,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            last: Instant::now(),
            longest: Duration::ZERO,
            keeps_alive: false,
        }
    }

    fn heard(&mut self, keep_alive: bool) {
        let now = Instant::now();
        self.longest = self.longest.max(now - self.last);
        self.last = now;
        self.keeps_alive |= keep_alive;
    }

    fn allowed(&self) -> Duration {
        self.limit.max(self.longest * 3)
    }

    async fn missed(&self) -> Duration {
        if self.keeps_alive {
            tokio::time::sleep_until(self.last + self.allowed()).await;
            self.allowed()
        } else {
            std::future::pending().await
        }
    }
}

/// Reads a stream's events into whatever `take` does with them.
enum Read {
    /// `take` has seen the end.
    Over(HintEnd),
    /// The stream ended, or broke.
    Ended(String),
}

async fn read(
    reply: &mut Reply,
    limit: usize,
    silence: Duration,
    board: &Board,
    mut take: impl FnMut(sse::Event) -> Option<HintEnd>,
) -> Read {
    let mut decoder = EventDecoder::new(limit);
    let mut silence = Silence::new(silence);
    loop {
        let chunk = tokio::select! {
            biased;
            chunk = reply.body.chunk() => chunk,
            waited = silence.missed() => return Read::Over(HintEnd::Silent { waited }),
        };
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) if decoder.is_inside_event() => {
                return Read::Ended("the stream ended inside an event".to_owned());
            }
            Ok(None) => return Read::Ended("the stream ended without a word".to_owned()),
            Err(fault) => return Read::Ended(RequestError::from(fault).to_string()),
        };
        if let Err(fault) = decoder.push(chunk) {
            return Read::Ended(fault.to_string());
        }
        let mut events = 0;
        loop {
            match decoder.next() {
                Ok(Some(event)) => {
                    events += 1;
                    if let Some(end) = take(event) {
                        return Read::Over(end);
                    }
                }
                Ok(None) => break,
                Err(fault) => return Read::Ended(fault.to_string()),
            }
        }
        silence.heard(events == 0 && !decoder.is_inside_event());
        board.alive();
    }
}

fn messages(event: &sse::Event, id: &RequestId) -> Vec<Message> {
    match message_of(event, id) {
        Ok(Some(Incoming::Single(message))) => vec![message],
        Ok(Some(Incoming::Batch(messages))) => messages.into_iter().flatten().collect(),
        Ok(None) => Vec::new(),
        Err(error) => {
            tracing::warn!(%error, "a malformed message on a hint stream was skipped");
            Vec::new()
        }
    }
}

/// A modern subscription over HTTP, from the request to its end.
pub(crate) async fn subscribe(
    side: HttpSide,
    outgoing: Outgoing,
    wanted: ListenFilter,
    board: Arc<Board>,
) {
    let patience = side.core.config.request_timeout;
    let opening = side
        .link
        .send(Verb::Post(outgoing.body.clone()), &outgoing.headers);
    let reply = tokio::select! {
        reply = opening => reply,
        () = side.core.closed() => Err(side.core.closed_error()),
        () = tokio::time::sleep(patience) => {
            side.link.distrust_sockets();
            Err(RequestError::Timeout { waited: patience })
        }
    };
    let mut reply = match reply {
        Ok(reply) => reply,
        Err(error) => return board.end(end_of(error)),
    };
    let is_stream = reply
        .content_type()
        .as_deref()
        .is_some_and(sse::is_event_stream);
    if !reply.status.is_success() || !is_stream {
        let explained = no_subscription(&side, reply, &outgoing.id);
        let end = tokio::time::timeout(patience, explained).await;
        return board.end(end.unwrap_or_else(|_| lost("the refusal never ended")));
    }
    let mut subscription = Subscription::new(outgoing.id.clone(), wanted, Arc::clone(&board));
    let (limit, silence) = (side.core.config.body_limit, side.core.config.silence_limit);
    // The acknowledgment is awaited as long as an answer would be.
    let begun = Instant::now();
    let acknowledged = AtomicBool::new(false);
    let reading = read(&mut reply, limit, silence, &board, |event| {
        let end = messages(&event, &outgoing.id)
            .into_iter()
            .find_map(|message| take(&mut subscription, &outgoing.id, message));
        acknowledged.store(subscription.is_acknowledged(), Ordering::Relaxed);
        end
    });
    let unacknowledged = async {
        tokio::time::sleep_until(begun + patience).await;
        if acknowledged.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let outcome = tokio::select! {
        biased;
        outcome = reading => outcome,
        () = side.core.closed() => Read::Over(HintEnd::Closed { reason: side.core.reason() }),
        () = unacknowledged => Read::Over(HintEnd::NoAcknowledgment),
    };
    if matches!(outcome, Read::Over(HintEnd::Silent { .. })) {
        side.link.distrust_sockets();
    }
    board.end(match outcome {
        Read::Over(end) => end,
        Read::Ended(_) if !acknowledged.load(Ordering::Relaxed) => HintEnd::NoAcknowledgment,
        Read::Ended(reason) => lost(reason),
    });
}

/// What an answer that is no stream says of the subscription.
async fn no_subscription(side: &HttpSide, mut reply: Reply, id: &RequestId) -> HintEnd {
    if !reply.status.is_success() {
        let status = reply.status;
        if status == StatusCode::METHOD_NOT_ALLOWED || status == StatusCode::NOT_IMPLEMENTED {
            let text = reply.body.explanation().await;
            return match error_in(&text) {
                Some((_, error)) => HintEnd::Refused(error),
                None => HintEnd::NoStream {
                    reason: format!("HTTP {}", status.as_u16()),
                },
            };
        }
        return match side.refusal(reply, id, false).await {
            RequestError::Http {
                status: status @ (400 | 404 | 406),
                excerpt,
                ..
            } => HintEnd::NoStream {
                reason: format!("HTTP {status}: {excerpt}"),
            },
            error => end_of(error),
        };
    }
    let content_type = reply.content_type();
    let text = reply.body.explanation().await;
    match Incoming::parse(&text) {
        Ok(Incoming::Single(Message::Response(Response { outcome, .. }))) => match outcome {
            Ok(_) => HintEnd::NoAcknowledgment,
            Err(error) => HintEnd::Refused(error),
        },
        _ => HintEnd::NotAStream {
            reason: format!(
                "HTTP {} with {} in place of an event stream: {}",
                reply.status.as_u16(),
                content_type.as_deref().unwrap_or("an untyped body"),
                excerpt(&text)
            ),
        },
    }
}

/// What a message on a subscription's stream means for it.
fn take(subscription: &mut Subscription, id: &RequestId, message: Message) -> Option<HintEnd> {
    match message {
        Message::Notification(notification) => subscription.deliver(Notified::read(notification)?),
        Message::Response(response) => {
            if response.id.as_ref().is_some_and(|found| found != id) {
                tracing::warn!(expected = %id, "an answer to another request was skipped");
                return None;
            }
            Some(subscription.answered(response.outcome))
        }
        Message::Request(request) => {
            tracing::warn!(
                method = request.method,
                "a request on a hint stream was skipped"
            );
            None
        }
    }
}

/// The legacy GET stream, resumed where it breaks off as long as the server
/// lets it.
pub(crate) async fn follow(side: HttpSide, wanted: ListenFilter, board: Arc<Board>) {
    let end = tokio::select! {
        end = follow_to_end(&side, wanted, &board) => end,
        () = side.core.closed() => HintEnd::Closed { reason: side.core.reason() },
    };
    board.end(end);
}

async fn follow_to_end(side: &HttpSide, wanted: ListenFilter, board: &Board) -> HintEnd {
    let config = &side.core.config;
    let mut bookmark = Bookmark::default();
    let mut opened = false;
    let mut fruitless = 0;
    loop {
        let headers = match bookmark.headers() {
            Ok(headers) => headers,
            Err(error) => return end_of(error),
        };
        let mut reply = match get(side, &headers).await {
            Ok(reply) => reply,
            Err(error) => return end_of(error),
        };
        if let Some(end) = no_stream(&mut reply, opened).await {
            return end;
        }
        if opened {
            board.resumed();
        } else {
            board.opened(wanted.clone());
            opened = true;
        }
        let mut messages_seen = false;
        let outcome = read(
            &mut reply,
            config.body_limit,
            config.silence_limit,
            board,
            |event| {
                bookmark.note(&event);
                for message in messages(&event, &RequestId::Number(0)) {
                    messages_seen = true;
                    legacy_message(side, board, message);
                }
                None
            },
        )
        .await;
        let reason = match outcome {
            Read::Over(end) => {
                if matches!(end, HintEnd::Silent { .. }) {
                    side.link.distrust_sockets();
                }
                return end;
            }
            Read::Ended(reason) => reason,
        };
        // Neither an id nor a delay: the server has said nothing of resuming.
        if bookmark.last_id.is_none() && bookmark.retry.is_none() {
            return lost(reason);
        }
        fruitless = if messages_seen { 0 } else { fruitless + 1 };
        if fruitless > FRUITLESS_RESUMES {
            return lost(format!("{reason}, {fruitless} times over"));
        }
        tokio::time::sleep(bookmark.pause()).await;
    }
}

async fn get(side: &HttpSide, headers: &HeaderMap) -> Result<Reply, RequestError> {
    let patience = side.core.config.request_timeout;
    tokio::time::timeout(patience, side.link.send(Verb::Get, headers))
        .await
        .unwrap_or_else(|_| {
            side.link.distrust_sockets();
            Err(RequestError::Timeout { waited: patience })
        })
}

/// What a reply to GET means when it is no event stream.
async fn no_stream(reply: &mut Reply, opened_before: bool) -> Option<HintEnd> {
    let status = reply.status;
    let content_type = reply.content_type();
    let described = |what: &str| format!("GET was answered HTTP {} {what}", status.as_u16());
    if status.is_success() {
        if content_type.as_deref().is_some_and(sse::is_event_stream) {
            return None;
        }
        return Some(HintEnd::NotAStream {
            reason: described(&format!(
                "with {} in place of an event stream",
                content_type.as_deref().unwrap_or("an untyped body")
            )),
        });
    }
    Some(match status {
        // Where there was a stream, its place has not gone: the session has.
        StatusCode::NOT_FOUND if opened_before => HintEnd::SessionGone,
        // The old stream still counts as open there; later it will not.
        StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            HintEnd::Lost {
                reason: described(""),
                retry_after: reply.retry_after(),
            }
        }
        StatusCode::NOT_IMPLEMENTED => HintEnd::NoStream {
            reason: described(""),
        },
        status if status.is_client_error() => HintEnd::NoStream {
            reason: described(""),
        },
        _ => HintEnd::Lost {
            reason: described(""),
            retry_after: reply.retry_after(),
        },
    })
}

fn legacy_message(side: &HttpSide, board: &Board, message: Message) {
    match message {
        Message::Notification(notification) => {
            let Some(notified) = Notified::read(notification) else {
                return;
            };
            // No filter goes over the wire in this era: every hint counts.
            match notified.notice {
                Notice::Changed { list, tag } => board.changed(list, tag),
                Notice::Updated { uri } => board.updated(uri),
                Notice::Log(params) => side.core.log(&params),
                other => tracing::debug!(?other, "a notification was skipped"),
            }
        }
        Message::Request(request) => side.question(request, Era::Legacy),
        Message::Response(_) => {
            tracing::warn!("an answer on the hint stream was skipped: it belongs on its own");
        }
    }
}
