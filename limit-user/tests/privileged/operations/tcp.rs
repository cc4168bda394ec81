//! Real TCP clients: refused connects are told so at once, and what was admitted goes on.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use super::{
    traffic::Worker,
    world::{World, number},
};
use crate::netns::Namespace;

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_connects_at_once_in_generic_mode() {
    let world = World::new();
    world.done(&format!("attach server0 --xdp-mode generic {POLICY}"));
    assert_refused_at_once(&world, "generic");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_connects_at_once_in_native_mode() {
    let world = World::new();
    // The other end of a veth takes what XDP sends only where it has a program of its own.
    let client = &world.cable.client;
    assert_eq!(
        world
            .run_in(client, "attach client0 --xdp-mode native")
            .code,
        Some(0)
    );
    world.done(&format!("attach server0 --xdp-mode native {POLICY}"));
    assert_refused_at_once(&world, "native");
    let judged = world.run_in(client, "counters --json").data();
    assert_eq!(number(&judged["totals"]["limited"]), 0, "{judged}");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn counts_a_connection_once_and_none_for_what_it_carries() {
    let world = World::new();
    world.done(&format!("attach server0 {POLICY}"));
    let _server = Echo::new(&world.cable.server);
    let mut kept = connect(&world.cable.client, V4).unwrap();
    for _ in 0..50 {
        assert_echoed(&mut kept);
    }
    assert_eq!(world.judged("web"), 1);
    assert_eq!(world.tokens("web", "198.51.100.2"), CAPACITY - 1);
    // Other ports are none of the policy's.
    assert_eq!(
        connect_to(&world.cable.client, SocketAddr::new(V4, 81))
            .unwrap_err()
            .kind(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(world.judged("web"), 1);
}

fn assert_refused_at_once(world: &World, mode: &str) {
    assert_eq!(world.done("counters")["xdp_mode"], mode);
    let _server = Echo::new(&world.cable.server);
    let client = &world.cable.client;
    let mut refused = 0;
    for address in [V4, V6] {
        let mut kept: Vec<TcpStream> = (0..CAPACITY)
            .map(|_| connect(client, address).unwrap())
            .collect();
        for _ in 0..5 {
            let error = connect(client, address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
            refused += 1;
            // The first SYN was answered: the client sent no other.
            assert_eq!(number(&world.counted("web")["reset"]), refused);
            kept.iter_mut().for_each(assert_echoed);
        }
    }
    let counted = world.counted("web");
    let seen = ["admitted", "limited", "reset", "dropped"].map(|name| number(&counted[name]));
    assert_eq!(seen, [2 * CAPACITY, refused, refused, 0]);

    // A source that is over its rate while the policy is relaxed connects again.
    world.done("set --policy web --monitor");
    let mut more = connect(client, V4).unwrap();
    assert_echoed(&mut more);
}

/// A server that sends back what it gets, until it is dropped.
pub(super) struct Echo {
    _worker: Worker,
}

impl Echo {
    pub(super) fn new(namespace: &Namespace) -> Self {
        let listener = namespace.run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap());
        listener.set_nonblocking(true).unwrap();
        let mut streams: Vec<TcpStream> = Vec::new();
        let mut buffer = [0; 64];
        let worker = Worker::new(move || {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).unwrap();
                streams.push(stream);
            }
            streams.retain_mut(|stream| match stream.read(&mut buffer) {
                Ok(0) => false,
                Ok(length) => stream.write_all(&buffer[..length]).is_ok(),
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
            std::thread::sleep(TURN);
        });
        Self { _worker: worker }
    }
}

pub(super) fn connect(client: &Namespace, address: IpAddr) -> io::Result<TcpStream> {
    connect_to(client, SocketAddr::new(address, PORT))
}

fn connect_to(client: &Namespace, to: SocketAddr) -> io::Result<TcpStream> {
    client.run(|| TcpStream::connect_timeout(&to, DEADLINE))
}

fn assert_echoed(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"still there").unwrap();
    let mut answer = [0; 11];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"still there");
}

/// The server's addresses on the first cable.
pub(super) const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

const POLICY: &str =
    "--policy web --ports 8080 --on-limit reset --capacity 3 --refill 1 --interval 1d";
const CAPACITY: u64 = 3;
const PORT: u16 = 8080;

/// Between two looks of the server at its connections.
const TURN: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(20);
