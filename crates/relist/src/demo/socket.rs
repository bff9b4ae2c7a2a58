//! A listener that counts what goes over its sockets, in both directions.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Bytes as the server's sockets see them.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// From clients to the server.
    up: AtomicU64,
    /// From the server to clients.
    down: AtomicU64,
}

impl Traffic {
    pub(super) fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }
}

pub(super) struct CountingListener {
    pub(super) listener: TcpListener,
    pub(super) traffic: Arc<Traffic>,
}

pub(super) struct CountingStream {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Listener for CountingListener {
    type Io = CountingStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (CountingStream, SocketAddr) {
        // The trait's own implementation waits and tries again on errors.
        let (stream, address) = Listener::accept(&mut self.listener).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let traffic = self.traffic.clone();
        (CountingStream { stream, traffic }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.traffic.up.fetch_add(read as u64, Ordering::Relaxed);
        polled
    }
}

impl CountingStream {
    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled {
            let written = *written as u64;
            self.traffic.down.fetch_add(written, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.wrote(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
