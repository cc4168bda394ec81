//! Senders and receivers that go on while the operator works.
//!
//! A socket belongs to the namespace that it was opened in, so their threads may run anywhere.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::netns::{Namespace, eventually};

/// Counts the datagrams that come through to a port, until it is dropped.
#[derive(Debug)]
pub(super) struct Receiver {
    received: Arc<AtomicU64>,
    worker: Worker,
}

/// Sends datagrams at a steady pace until it is stopped.
#[derive(Debug)]
pub(super) struct Sender {
    sent: Arc<AtomicU64>,
    worker: Worker,
}

/// A thread that ends when it is told to.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(super) fn new(namespace: &Namespace, port: u16) -> Self {
        let socket = namespace.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        let mut buffer = [0; 64];
        let worker = Worker::new(move || match socket.recv(&mut buffer) {
            Ok(_) => {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        });
        Self { received, worker }
    }

    pub(super) fn received(&self) -> u64 {
        assert!(self.worker.is_running());
        self.received.load(Ordering::Relaxed)
    }

    /// Waits for so many datagrams.
    pub(super) fn await_received(&self, datagrams: u64) {
        eventually("the datagrams come through", || {
            self.received() >= datagrams
        });
        assert_eq!(self.received(), datagrams);
    }
}

impl Sender {
    /// Sends a datagram from an address of this namespace each `pause` and the time that it takes.
    pub(super) fn new(
        namespace: &Namespace,
        from: IpAddr,
        to: SocketAddr,
        pause: Duration,
    ) -> Self {
        let socket = open(namespace, from);
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        let worker = Worker::new(move || {
            socket.send_to(b"limit", to).unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            thread::sleep(pause);
        });
        Self { sent, worker }
    }

    /// Ends it and says how much it sent.
    pub(super) fn stop(mut self) -> u64 {
        self.worker.end();
        self.sent.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Does `turn` again and again.
    pub(super) fn new(mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                turn();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends so many datagrams from an address of this namespace, all at once.
pub(super) fn send(namespace: &Namespace, from: IpAddr, to: SocketAddr, datagrams: u32) {
    let socket = open(namespace, from);
    for _ in 0..datagrams {
        socket.send_to(b"limit", to).unwrap();
    }
}

fn open(namespace: &Namespace, from: IpAddr) -> UdpSocket {
    namespace.run(|| UdpSocket::bind((from, 0)).unwrap())
}

/// How long a receiver waits before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(20);
