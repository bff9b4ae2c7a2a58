//! Lines of bounded length: a longer one is passed over, not kept.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The line.
    Text(Vec<u8>),
    /// It was longer than this.
    TooLong(usize),
}

/// Reads lines. [`Lines::next`] may be dropped and called again.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    /// The line is longer than the limit, and its end has not come yet.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 << 10, reader),
            limit,
            line: Vec::new(),
            skipping: false,
        }
    }

    /// The next line; `None` at the end. A last line without an end counts.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                let rest = self.skipping || !self.line.is_empty();
                return Ok(rest.then(|| self.take()));
            }
            let end = available.iter().position(|b| *b == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if self.line.len() + part.len() > self.limit {
                self.skipping = true;
                self.line = Vec::new();
            }
            if !self.skipping {
                self.line.extend_from_slice(part);
            }
            let used = end.map_or(available.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.skipping) {
            return Line::TooLong(self.limit);
        }
        Line::Text(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_line_is_passed_over_and_the_next_one_is_read() {
        let mut input = b"one\n".to_vec();
        input.extend(vec![b'x'; 1 << 20]);
        input.extend(b"\ntwo\nthree");
        let mut lines = Lines::new(&input[..], 16);
        let text = |t: &str| Some(Line::Text(t.into()));
        assert_eq!(lines.next().await.expect("reads"), text("one"));
        assert_eq!(lines.next().await.expect("reads"), Some(Line::TooLong(16)));
        assert_eq!(lines.line.capacity(), 0);
        assert_eq!(lines.next().await.expect("reads"), text("two"));
        assert_eq!(lines.next().await.expect("reads"), text("three"));
        assert_eq!(lines.next().await.expect("reads"), None);
    }
}
