//! The events of one legacy stream, kept so that a client can come back for
//! what it missed.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::watch;

use crate::hints::lock;

/// Events kept of one stream.
const MAX_EVENTS: usize = 256;

/// Bytes kept of one stream. One event alone may be larger.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Event {
    number: u64,
    message: Bytes,
    /// Progress and log messages: what is lost first.
    droppable: bool,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    bytes: usize,
    last: u64,
    /// Whether anything but responses was sent.
    chatty: bool,
    done: bool,
    /// Grows with every reader: an older one stops.
    reader: u64,
}

/// The events of one stream.
#[derive(Debug)]
pub(crate) struct EventLog {
    stream: u64,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Events, oldest first, with their numbers.
    Events(Vec<(u64, Bytes)>),
    /// Nothing yet.
    Wait,
    /// Nothing any more: for this reader, or for all.
    End,
}

/// What became of a request while nobody streamed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is not done.
    Open,
    /// It wants to be a stream.
    Stream,
    /// All is there: these are the responses.
    Responses(Vec<Bytes>),
}

/// The reader that a stream begins with.
pub(crate) const FIRST_READER: u64 = 0;

impl EventLog {
    pub(crate) fn new(stream: u64) -> Self {
        Self {
            stream,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) const fn stream(&self) -> u64 {
        self.stream
    }

    fn update(&self, act: impl FnOnce(&mut State)) {
        act(&mut lock(&self.state));
        self.changed.send_replace(());
    }

    /// Adds a notification or a request.
    pub(crate) fn push(&self, message: Bytes, droppable: bool) {
        self.update(|state| {
            state.chatty = true;
            state.push(message, droppable);
        });
    }

    /// Adds a notification; an earlier one that says the same is forgotten.
    pub(crate) fn push_once(&self, message: Bytes) {
        self.update(|state| {
            if let Some(at) = state.events.iter().position(|e| e.message == message) {
                state.remove(at);
            }
            state.push(message, true);
        });
    }

    pub(crate) fn push_response(&self, message: Bytes) {
        self.update(|state| state.push(message, false));
    }

    /// Nothing follows.
    pub(crate) fn finish(&self) {
        self.update(|state| state.done = true);
    }

    pub(crate) fn is_done(&self) -> bool {
        lock(&self.state).done
    }

    /// Ends the connection of the reader, not the stream.
    pub(crate) fn detach(&self) {
        self.update(|state| {
            state.chatty = true;
            state.reader += 1;
        });
    }

    /// Becomes the reader.
    pub(crate) fn attach(&self) -> u64 {
        let mut reader = 0;
        self.update(|state| {
            state.reader += 1;
            reader = state.reader;
        });
        reader
    }

    pub(crate) fn last(&self) -> u64 {
        lock(&self.state).last
    }

    /// What stands behind an event.
    pub(crate) fn read(&self, reader: u64, after: u64) -> Read {
        let state = lock(&self.state);
        if state.reader != reader {
            return Read::End;
        }
        let events: Vec<(u64, Bytes)> = state
            .events
            .iter()
            .filter(|e| e.number > after)
            .map(|e| (e.number, e.message.clone()))
            .collect();
        match (events.is_empty(), state.done) {
            (false, _) => Read::Events(events),
            (true, true) => Read::End,
            (true, false) => Read::Wait,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let state = lock(&self.state);
        if state.chatty {
            Verdict::Stream
        } else if state.done {
            Verdict::Responses(state.events.iter().map(|e| e.message.clone()).collect())
        } else {
            Verdict::Open
        }
    }

    /// Wakes whenever something may have changed. To be taken before looking.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

impl State {
    fn push(&mut self, message: Bytes, droppable: bool) {
        self.last += 1;
        self.bytes += message.len();
        self.events.push_back(Event {
            number: self.last,
            message,
            droppable,
        });
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let newest = self.events.len() - 1;
            match self.events.iter().position(|e| e.droppable) {
                Some(at) if at < newest => self.remove(at),
                _ => break,
            }
        }
    }

    fn remove(&mut self, at: usize) {
        if let Some(event) = self.events.remove(at) {
            self.bytes -= event.message.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(read: Read) -> Vec<u64> {
        match read {
            Read::Events(events) => events.into_iter().map(|(n, _)| n).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reader_that_comes_back_gets_what_it_missed() {
        let log = EventLog::new(1);
        log.push("a".into(), true);
        log.push("b".into(), true);
        assert_eq!(numbers(log.read(FIRST_READER, 0)), [1, 2]);
        log.detach();
        assert_eq!(log.read(FIRST_READER, 2), Read::End);
        log.push_response("c".into());
        log.finish();
        let reader = log.attach();
        assert_eq!(numbers(log.read(reader, 1)), [2, 3]);
        assert_eq!(log.read(reader, 3), Read::End);
    }

    #[test]
    fn a_slow_reader_loses_progress_and_no_answer() {
        let log = EventLog::new(1);
        for _ in 0..10_000 {
            log.push(Bytes::from_static(&[b'x'; 1000]), true);
        }
        log.push_response("answer".into());
        let state = lock(&log.state);
        assert!(state.events.len() <= MAX_EVENTS);
        let newest = state.events.back().map(|e| e.message.clone());
        assert_eq!(newest, Some("answer".into()));
    }

    #[test]
    fn repeated_hints_are_kept_once() {
        let log = EventLog::new(0);
        for _ in 0..5 {
            log.push_once("tools".into());
            log.push_once("prompts".into());
        }
        assert_eq!(numbers(log.read(FIRST_READER, 0)), [9, 10]);
    }

    #[test]
    fn an_answer_alone_needs_no_stream() {
        let log = EventLog::new(1);
        assert_eq!(log.verdict(), Verdict::Open);
        log.push_response("r".into());
        assert_eq!(log.verdict(), Verdict::Open);
        log.finish();
        assert_eq!(log.verdict(), Verdict::Responses(vec!["r".into()]));
        log.push("p".into(), true);
        assert_eq!(log.verdict(), Verdict::Stream);
    }
}
