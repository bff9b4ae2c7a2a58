//! Server-sent events out of bytes.
//!
//! The parsing itself is the `sse-stream` crate's. What a client of this
//! protocol needs besides is done here, on the bytes before they reach it: a
//! limit on one event, keep-alives that can be seen, and the difference between
//! a stream that ended and one that broke off inside an event.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use sse_stream::SseByteStream;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The data, lines joined with `\n`. Empty on an event that only carries an
    /// id or a delay: those prime a stream for being resumed.
    pub data: String,
    /// The id, to be given back when the stream is resumed.
    pub id: Option<String>,
    /// How long to wait before the stream is resumed, in milliseconds.
    pub retry: Option<u64>,
    /// The type; absent means `message`.
    pub kind: Option<String>,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventFault {
    /// An event is larger than allowed.
    #[error("an event is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Bytes that are not UTF-8 inside an event.
    #[error("an event is not UTF-8: {reason}")]
    NotUtf8 {
        /// What is wrong.
        reason: String,
    },
}

/// The byte source that the parser reads: what was pushed, then "not yet".
#[derive(Debug, Clone, Default)]
struct Inbox(Arc<Mutex<Option<Bytes>>>);

impl Stream for Inbox {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let pushed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Pending without a waker is right here: the decoder polls again after
        // every push, and nobody else polls.
        pushed.map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(bytes))))
    }
}

/// Where a line stands, for finding the borders of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    LineStart,
    /// After a CR: a LF that follows belongs to it.
    AfterCr,
    Field,
    Comment,
}

/// Counts the bytes of the event that is being received.
#[derive(Debug)]
struct Borders {
    at: At,
    /// Bytes of fields since the last event ended; comments do not count.
    open: usize,
    /// Bytes of the comment that is being received.
    comment: usize,
    /// How much of a byte-order mark was seen; `None` past the place for one.
    mark: Option<usize>,
}

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

impl Borders {
    fn scan(&mut self, bytes: &[u8], limit: usize) -> Result<(), EventFault> {
        for &byte in bytes {
            if let Some(seen) = self.mark {
                if BYTE_ORDER_MARK.get(seen) == Some(&byte) {
                    self.mark = Some(seen + 1);
                    continue;
                }
                self.mark = None;
            }
            if self.at == At::AfterCr {
                self.at = At::LineStart;
                if byte == b'\n' {
                    continue;
                }
            }
            match (self.at, byte) {
                (At::LineStart, b'\n' | b'\r') => self.open = 0,
                (At::LineStart, b':') => {
                    self.at = At::Comment;
                    self.comment = 0;
                }
                (At::Comment | At::Field, b'\n' | b'\r') => self.at = At::LineStart,
                (At::LineStart | At::Field, _) => {
                    self.at = At::Field;
                    self.open += 1;
                    if self.open > limit {
                        return Err(EventFault::TooLarge { limit });
                    }
                }
                (At::Comment | At::AfterCr, _) => {
                    self.comment += 1;
                    if self.comment > limit {
                        return Err(EventFault::TooLarge { limit });
                    }
                }
            }
            if byte == b'\r' {
                self.at = At::AfterCr;
            }
        }
        Ok(())
    }
}

/// Turns chunks of bytes into events.
///
/// ```
/// use relist_client::transport::sse::EventDecoder;
///
/// let mut decoder = EventDecoder::new(1024);
/// decoder.push(b"data: {\"a\":".as_slice().into())?;
/// assert_eq!(decoder.next()?, None);
/// decoder.push(b"1}\n\n".as_slice().into())?;
/// assert_eq!(decoder.next()?.unwrap().data, "{\"a\":1}");
/// # Ok::<(), relist_client::transport::sse::EventFault>(())
/// ```
pub struct EventDecoder {
    inbox: Inbox,
    parser: SseByteStream<Inbox>,
    borders: Borders,
    limit: usize,
}

impl EventDecoder {
    /// A decoder that refuses events of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let inbox = Inbox::default();
        Self {
            parser: SseByteStream::new(inbox.clone()),
            inbox,
            borders: Borders {
                at: At::LineStart,
                open: 0,
                comment: 0,
                mark: Some(0),
            },
            limit,
        }
    }

    /// Takes a chunk in. Call [`Self::next`] until it gives `None` before the
    /// next chunk.
    ///
    /// # Errors
    ///
    /// [`EventFault::TooLarge`]: the stream cannot be read on.
    pub fn push(&mut self, chunk: Bytes) -> Result<(), EventFault> {
        self.borders.scan(&chunk, self.limit)?;
        if !chunk.is_empty() {
            *self.inbox.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(chunk);
        }
        Ok(())
    }

    /// The next event of what was pushed.
    ///
    /// # Errors
    ///
    /// [`EventFault::NotUtf8`]: the stream cannot be read on.
    #[allow(
        clippy::should_implement_trait,
        reason = "fallible, and not the end when it gives None"
    )]
    pub fn next(&mut self) -> Result<Option<Event>, EventFault> {
        match self.parser.next().now_or_never() {
            None | Some(None) => Ok(None),
            Some(Some(Ok(block))) => Ok(Some(Event {
                data: block.data.unwrap_or_default(),
                id: block.id,
                retry: block.retry,
                kind: block.event,
            })),
            Some(Some(Err(error))) => Err(EventFault::NotUtf8 {
                reason: error.to_string(),
            }),
        }
    }

    /// Whether the bytes so far end inside an event, which is then no event.
    #[must_use]
    pub fn is_inside_event(&self) -> bool {
        self.borders.open > 0
    }
}

impl std::fmt::Debug for EventDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventDecoder")
            .field("borders", &self.borders)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Whether a `Content-Type` says `text/event-stream`, whatever its case and
/// parameters.
#[must_use]
pub fn is_event_stream(content_type: &str) -> bool {
    is_media_type(content_type, "text/event-stream")
}

/// Whether a `Content-Type` names a media type, whatever its case and parameters.
pub(crate) fn is_media_type(content_type: &str, wanted: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_in(chunks: &[&[u8]]) -> Result<Vec<Event>, EventFault> {
        let mut decoder = EventDecoder::new(1000);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk))?;
            while let Some(event) = decoder.next()? {
                events.push(event);
            }
        }
        Ok(events)
    }

    fn data(text: &str) -> Vec<String> {
        // Cut at every place, and byte by byte: the chunks never matter.
        let bytes = text.as_bytes();
        let whole: Vec<String> = decode_in(&[bytes])
            .expect("decodes")
            .into_iter()
            .map(|e| e.data)
            .collect();
        for cut in 0..=bytes.len() {
            let (left, right) = bytes.split_at(cut);
            let parts = decode_in(&[left, right]).expect("decodes");
            let parts: Vec<String> = parts.into_iter().map(|e| e.data).collect();
            assert_eq!(parts, whole, "cut at {cut} of {text:?}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let parts = decode_in(&single).expect("decodes");
        assert_eq!(
            parts.into_iter().map(|e| e.data).collect::<Vec<_>>(),
            whole,
            "byte by byte: {text:?}"
        );
        whole
    }

    #[test]
    fn line_ends_may_be_lf_crlf_or_cr() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("data: a{end}{end}data: b{end}{end}");
            assert_eq!(data(&text), ["a", "b"], "{end:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_at_the_start_is_skipped() {
        assert_eq!(data("\u{feff}data: a\n\n"), ["a"]);
        assert_eq!(data("\u{feff}: hello\ndata: a\n\n"), ["a"]);
    }

    #[test]
    fn several_data_lines_are_one_event() {
        assert_eq!(
            data("data: {\ndata:\"a\":1\ndata\ndata: }\n\n"),
            ["{\n\"a\":1\n\n}"]
        );
    }

    #[test]
    fn comments_are_skipped_wherever_they_stand() {
        assert_eq!(
            data(":\r\n: ping\n\n:\n\ndata: a\n: inside\ndata: b\n\n"),
            ["a\nb"]
        );
    }

    #[test]
    fn a_character_may_be_cut_by_a_chunk() {
        assert_eq!(data("data: é世😀\n\n"), ["é世😀"]);
    }

    #[test]
    fn unknown_fields_are_ignored_and_known_ones_read() {
        let events = decode_in(&[b"foo: 1\nevent: message\nid: 7\nretry: 500\ndata: \n\n"])
            .expect("decodes");
        assert_eq!(
            events,
            [Event {
                data: String::new(),
                id: Some("7".into()),
                retry: Some(500),
                kind: Some("message".into())
            }]
        );
        assert_eq!(data("retry: soon\ndata: a\n\n"), ["a"]);
    }

    #[test]
    fn a_stream_cut_inside_an_event_says_so() {
        for (text, inside) in [
            (&b"data: a\n\n"[..], false),
            (b"data: a\n", true),
            (b"data: a", true),
            (b"data: \xe4\xb8", true),
            (b"data: a\n\n: ping", false),
            (b": ping\n", false),
            (b"data: a\r\n\r\n", false),
            (b"data: a\r\r", false),
            (b"\xef\xbb\xbf: ping\n", false),
            (b"", false),
        ] {
            let mut decoder = EventDecoder::new(1000);
            decoder.push(Bytes::copy_from_slice(text)).expect("small");
            while decoder.next().expect("decodes").is_some() {}
            assert_eq!(decoder.is_inside_event(), inside, "{text:?}");
        }
    }

    #[test]
    fn an_event_beyond_the_limit_is_refused_and_comments_do_not_count() {
        let mut decoder = EventDecoder::new(100);
        for _ in 0..1000 {
            decoder
                .push(Bytes::from_static(b": keep-alive\n"))
                .expect("comments");
            assert_eq!(decoder.next().expect("decodes"), None);
        }
        let long = vec![b'x'; 60];
        decoder
            .push([&b"data: "[..], &long].concat().into())
            .expect("below");
        assert_eq!(
            decoder.push(Bytes::from(long)),
            Err(EventFault::TooLarge { limit: 100 })
        );
    }

    #[test]
    fn many_small_events_are_within_the_limit() {
        let mut decoder = EventDecoder::new(100);
        for _ in 0..1000 {
            decoder
                .push(Bytes::from_static(b"data: small\r\n\r\n"))
                .expect("small");
            assert_eq!(
                decoder.next().expect("decodes").expect("event").data,
                "small"
            );
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert!(matches!(
            decode_in(&[b"data: \xff\n\n"]),
            Err(EventFault::NotUtf8 { .. })
        ));
    }

    #[test]
    fn a_content_type_is_recognised_whatever_its_case_and_parameters() {
        for yes in [
            "text/event-stream",
            "Text/Event-Stream; charset=UTF-8",
            " text/event-stream ;x=y",
        ] {
            assert!(is_event_stream(yes), "{yes}");
        }
        for no in ["text/html", "application/json", "text/event-streams", ""] {
            assert!(!is_event_stream(no), "{no}");
        }
    }
}
