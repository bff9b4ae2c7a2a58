//! Lines out of a pipe, bounded: a line that is too long is skipped with
//! constant memory, and the next one is read as if nothing had happened.

use std::io;

use relist_protocol::jsonrpc::RequestId;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line is in the buffer, without its end.
    Complete,
    /// A line was longer than the limit and has been skipped.
    TooLong(Skipped),
    /// The end. What stood after the last line end is in the buffer.
    End,
}

/// How much of either end of a skipped line is kept.
const KEPT: usize = 128;

/// What is left of a line that was skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Its length in bytes.
    pub(crate) length: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Skipped {
    fn keep(&mut self, part: &[u8]) {
        let room = KEPT - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail
            .extend_from_slice(&part[part.len().saturating_sub(KEPT)..]);
        self.tail.drain(..self.tail.len().saturating_sub(KEPT));
    }

    /// The id of the response that the line was, where it stands where every
    /// writer puts it: among the first fields, or as the very last one.
    pub(crate) fn id(&self) -> Option<RequestId> {
        fn value(text: &str, ends: &[char]) -> Option<RequestId> {
            let end = text.find(ends)?;
            serde_json::from_str(text[..end].trim()).ok()
        }
        let head = String::from_utf8_lossy(&self.head);
        let mut rest = head.trim_start().strip_prefix('{')?.trim_start();
        if let Some(after) = rest.strip_prefix("\"jsonrpc\"") {
            rest = after.trim_start().strip_prefix(':')?.trim_start();
            rest = rest.strip_prefix("\"2.0\"")?.trim_start();
            rest = rest.strip_prefix(',')?.trim_start();
        }
        if let Some(after) = rest.strip_prefix("\"id\"") {
            return value(after.trim_start().strip_prefix(':')?, &[',', '}']);
        }
        // `…,"id":7}` at the very end closes the outermost object, so the id is
        // the message's own.
        let tail = String::from_utf8_lossy(&self.tail);
        let (_, last) = tail.rsplit_once(",\"id\":")?;
        let id = last.trim_end().strip_suffix('}')?;
        serde_json::from_str(id).ok()
    }
}

/// Reads one line into `buffer`, which is cleared first.
pub(crate) async fn read_line<R: AsyncBufRead + Unpin>(
    reader: &mut R,
    buffer: &mut Vec<u8>,
    limit: usize,
) -> io::Result<Line> {
    buffer.clear();
    let mut skipped: Option<Skipped> = None;
    loop {
        let available = match reader.fill_buf().await {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if available.is_empty() {
            return Ok(skipped.map_or(Line::End, Line::TooLong));
        }
        let end = available.iter().position(|b| *b == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if skipped.is_none() && buffer.len() + part.len() > limit {
            let mut begun = Skipped::default();
            begun.length = buffer.len() as u64;
            begun.keep(buffer);
            skipped = Some(begun);
            // Give the memory back: nobody will want this line.
            *buffer = Vec::new();
        }
        match &mut skipped {
            Some(skipped) => {
                skipped.length += part.len() as u64;
                skipped.keep(part);
            }
            None => buffer.extend_from_slice(part),
        }
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            if let Some(skipped) = skipped {
                return Ok(Line::TooLong(skipped));
            }
            if buffer.last() == Some(&b'\r') {
                buffer.pop();
            }
            return Ok(Line::Complete);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn lines(text: &str, limit: usize) -> Vec<String> {
        let mut reader = BufReader::with_capacity(7, text.as_bytes());
        let mut buffer = Vec::new();
        let mut lines = Vec::new();
        loop {
            let line = read_line(&mut reader, &mut buffer, limit)
                .await
                .expect("reads");
            let text = String::from_utf8_lossy(&buffer).into_owned();
            match line {
                Line::Complete => lines.push(text),
                Line::TooLong(skipped) => lines.push(format!("skipped {}", skipped.length)),
                Line::End => {
                    lines.push(format!("end {text}"));
                    return lines;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let text = format!("{}\nshort\r\n\nexactly-10\nlast", "x".repeat(100));
        assert_eq!(
            lines(&text, 10).await,
            ["skipped 100", "short", "", "exactly-10", "end last"]
        );
    }

    #[tokio::test]
    async fn a_long_line_costs_no_memory_and_still_names_its_request() {
        for (line, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"t":"#,
                Some(RequestId::Number(7)),
            ),
            (
                r#"{ "jsonrpc" : "2.0" , "id" : "a" , "result":{"t":"#,
                Some("a".into()),
            ),
            (r#"{"id":7.0,"result":{"t":"#, Some(RequestId::Number(7))),
            (r#"{"result":{"id":8,"t":"#, Some(RequestId::Number(9))),
            (
                r#"{"jsonrpc":"2.0","method":"x","params":{"t":"#,
                Some(RequestId::Number(9)),
            ),
        ] {
            let text = format!("{line}\"{}\"}},\"id\":9}}\n", "x".repeat(1 << 20));
            let mut reader = BufReader::with_capacity(4096, text.as_bytes());
            let mut buffer = Vec::new();
            let read = read_line(&mut reader, &mut buffer, 1000)
                .await
                .expect("reads");
            let Line::TooLong(skipped) = read else {
                panic!("skipped");
            };
            assert_eq!(skipped.id(), id, "{line}");
            assert!(skipped.head.capacity() + skipped.tail.capacity() < 4096);
            assert_eq!(buffer.capacity(), 0);
        }
        let mut nested = Skipped::default();
        nested.keep(br#"{"result":{"a":[{"b":1,"id":3}]}}"#);
        assert_eq!(nested.id(), None);
    }
}
