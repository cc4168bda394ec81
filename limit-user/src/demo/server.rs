//! The application behind the filter: accepts, answers one byte, and counts by source.
//!
//! The count is what was delivered: no counter of the filter has a part in it.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::AsRawFd,
    thread::{self, JoinHandle},
};

use nix::sys::socket::{Shutdown, shutdown};

/// Connections accepted, by source.
pub(super) type Accepted = HashMap<IpAddr, u64>;

/// A server in the network namespace of the thread that started it; dropped, it stops.
#[derive(Debug)]
pub(super) struct Server {
    listeners: Vec<(TcpListener, JoinHandle<Accepted>)>,
}

impl Server {
    /// Listens at each address.
    pub(super) fn start(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut server = Self {
            listeners: Vec::with_capacity(addresses.len()),
        };
        for address in addresses {
            let listener = TcpListener::bind(*address)?;
            let own = listener.try_clone()?;
            let serving = thread::Builder::new()
                .name("server".to_owned())
                .spawn(move || serve(&own))?;
            server.listeners.push((listener, serving));
        }
        Ok(server)
    }

    /// Stops, and says what was accepted.
    pub(super) fn stop(mut self) -> Accepted {
        self.end()
    }

    fn end(&mut self) -> Accepted {
        let mut accepted = Accepted::new();
        for (listener, serving) in self.listeners.drain(..) {
            // Wakes the thread that waits for a connection; nothing else would.
            shutdown(listener.as_raw_fd(), Shutdown::Both).ok();
            // A thread that panicked counted nothing: its sources have nothing delivered.
            for (source, count) in serving.join().unwrap_or_default() {
                *accepted.entry(source).or_default() += count;
            }
        }
        accepted
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Accepts until the listener is shut down.
fn serve(listener: &TcpListener) -> Accepted {
    let mut accepted = Accepted::new();
    while let Ok((mut stream, peer)) = listener.accept() {
        *accepted.entry(peer.ip()).or_default() += 1;
        // A client that is gone by now finds out by itself.
        stream.write_all(&[ANSWER]).ok();
    }
    accepted
}

/// What a client is told: that the application was there.
pub(super) const ANSWER: u8 = b'.';

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{Ipv4Addr, TcpStream},
    };

    use super::*;

    #[test]
    fn answers_and_counts_until_it_is_stopped() {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let server = Server::start(&[SocketAddr::new(address, 0)]).unwrap();
        let target = server.listeners[0].0.local_addr().unwrap();
        for _ in 0..3 {
            let mut byte = [0];
            TcpStream::connect(target)
                .unwrap()
                .read_exact(&mut byte)
                .unwrap();
            assert_eq!(byte, [ANSWER]);
        }
        assert_eq!(server.stop(), Accepted::from([(address, 3)]));
        assert!(TcpStream::connect(target).is_err());
    }
}
