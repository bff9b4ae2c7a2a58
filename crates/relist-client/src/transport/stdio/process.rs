//! The program behind a pipe, and the tasks that tend it.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::table::Shared;
use crate::config;
use crate::connection::core::Core;
use crate::error::{ConnectError, excerpt};
use crate::transport::line::{Line, read_line};

/// How much of a line on the error output is kept.
const ERROR_LINE: usize = 8 << 10;

/// How long output may still be read after the program has ended: a grandchild
/// may hold the pipe open for ever.
const DRAIN: Duration = Duration::from_millis(500);

/// Starts the program. The receiver turns true when it has ended.
pub(super) fn spawn(
    command: &config::Command,
    core: Arc<Core>,
) -> Result<(Arc<Shared>, watch::Receiver<bool>), ConnectError> {
    let mut starting = Command::new(&command.program);
    starting
        .args(&command.args)
        .envs(&command.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(cwd) = &command.cwd {
        starting.current_dir(cwd);
    }
    // A group of its own: an interrupt at the terminal is ours to handle,
    // and what the program starts can be ended along with it.
    #[cfg(unix)]
    starting.process_group(0);
    let failed = |reason: String| ConnectError::Spawn {
        program: command.program.clone(),
        reason,
    };
    let mut child = starting.spawn().map_err(|e| failed(e.to_string()))?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed("its streams are missing".to_owned()));
    };
    let (shared, outbox) = Shared::new(core);
    let eof = CancellationToken::new();
    tokio::spawn(write(stdin, outbox, shared.stop.clone()));
    tokio::spawn(read(stdout, Arc::clone(&shared), eof.clone()));
    tokio::spawn(listen_to_errors(
        stderr,
        Arc::clone(&shared),
        command.program.clone(),
    ));
    let (over, ended) = watch::channel(false);
    tokio::spawn(look_after(child, Arc::clone(&shared), eof, over));
    Ok((shared, ended))
}

async fn write<W: AsyncWrite + Unpin>(
    mut pipe: W,
    mut outbox: mpsc::Receiver<Bytes>,
    stop: CancellationToken,
) {
    loop {
        let bytes = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            bytes = outbox.recv() => bytes,
        };
        let Some(bytes) = bytes else { break };
        let written = async {
            pipe.write_all(&bytes).await?;
            pipe.write_all(b"\n").await?;
            pipe.flush().await
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            written = written => if let Err(error) = written {
                tracing::debug!(%error, "the program no longer reads");
                break;
            },
        }
    }
    // Dropping the pipe closes the program's input: the signal to end.
}

async fn read<R: AsyncRead + Unpin>(pipe: R, shared: Arc<Shared>, eof: CancellationToken) {
    let limit = shared.core.config.line_limit;
    let mut reader = BufReader::with_capacity(64 << 10, pipe);
    let mut buffer = Vec::new();
    loop {
        match read_line(&mut reader, &mut buffer, limit).await {
            Ok(Line::Complete) => {
                shared
                    .received
                    .fetch_add(buffer.len() as u64 + 1, Ordering::Relaxed);
                if !buffer.trim_ascii().is_empty() {
                    shared.take(&buffer);
                }
            }
            Ok(Line::TooLong(skipped)) => {
                shared.received.fetch_add(skipped.length, Ordering::Relaxed);
                shared.too_long(&skipped, limit);
            }
            Ok(Line::End) => {
                if !buffer.is_empty() {
                    tracing::warn!(line = excerpt(&buffer), "the output ended inside a line");
                }
                break;
            }
            Err(error) => {
                tracing::debug!(%error, "the program's output cannot be read");
                break;
            }
        }
        if buffer.capacity() > 1 << 20 {
            // One large answer must not be paid for ever after.
            buffer = Vec::new();
        }
    }
    eof.cancel();
}

async fn listen_to_errors<R: AsyncRead + Unpin>(pipe: R, shared: Arc<Shared>, program: String) {
    let mut reader = BufReader::new(pipe);
    let mut buffer = Vec::new();
    loop {
        match read_line(&mut reader, &mut buffer, ERROR_LINE).await {
            Ok(Line::Complete) => {
                let text = String::from_utf8_lossy(&buffer);
                tracing::debug!(target: "relist::stderr", %program, "{text}");
                shared.note(&text);
            }
            Ok(Line::TooLong(skipped)) => {
                tracing::debug!(target: "relist::stderr", %program, bytes = skipped.length, "a long line");
            }
            Ok(Line::End) => {
                if !buffer.is_empty() {
                    shared.note(&String::from_utf8_lossy(&buffer));
                }
                return;
            }
            Err(_) => return,
        }
    }
}

/// Waits for the program's end, or brings it about. However it ends, everything
/// that waits learns of it, and no zombie is left.
async fn look_after(
    mut child: Child,
    shared: Arc<Shared>,
    eof: CancellationToken,
    over: watch::Sender<bool>,
) {
    let patience = shared.core.config.shutdown_timeout;
    let group = child.id();
    tokio::select! {
        status = child.wait() => {
            // What it wrote before it ended still counts.
            let drained = tokio::time::timeout(DRAIN, eof.cancelled()).await;
            let how = status.map_or_else(|e| e.to_string(), |s| s.to_string());
            shared.fail(format!("the program ended ({how}){}", shared.last_words()));
            if drained.is_err() {
                // Something that it started lives on, with its output.
                end_group(group, false).await;
            }
        }
        () = eof.cancelled() => {
            // It closed its output: nothing more will come. Usually it has ended.
            let status = tokio::time::timeout(DRAIN, child.wait()).await;
            let how = match status {
                Ok(Ok(status)) => format!("the program ended ({status})"),
                _ => "the program closed its output".to_owned(),
            };
            shared.fail(format!("{how}{}", shared.last_words()));
            shared.stop.cancel();
            end(&mut child, patience).await;
        }
        () = shared.stop.cancelled() => {
            shared.fail("closed by this client".to_owned());
            end(&mut child, patience).await;
        }
    }
    shared.stop.cancel();
    over.send_replace(true);
}

/// The input is closed; gives the program time, then asks, then insists.
async fn end(child: &mut Child, patience: Duration) {
    let group = child.id();
    if tokio::time::timeout(patience, child.wait()).await.is_ok() {
        return;
    }
    if end_group(group, false).await && tokio::time::timeout(patience, child.wait()).await.is_ok() {
        return;
    }
    end_group(group, true).await;
    if let Err(error) = child.kill().await {
        tracing::warn!(%error, "the program cannot be ended");
    }
}

/// Signals the program and what it started. Through `kill(1)`: a signal of
/// one's own needs unsafe code, which this workspace forbids.
#[cfg(unix)]
async fn end_group(group: Option<u32>, by_force: bool) -> bool {
    let Some(group) = group else {
        return false;
    };
    let signal = if by_force { "-KILL" } else { "-TERM" };
    Command::new("kill")
        .args([signal, "--", &format!("-{group}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .is_ok_and(|status| status.success())
}

#[cfg(not(unix))]
async fn end_group(_: Option<u32>, _: bool) -> bool {
    false
}
