//! Places of a test's own: mounts, network namespaces and cables that nobody else sees.
//!
//! A [`Sandbox`] gives the calling thread a mount namespace with a bpffs of its own, and a
//! [`Namespace`] is held by descriptors of this process alone. Neither has a name in the system, so
//! both go when the process ends, however it ends. Threads and processes that the test starts see
//! the same mounts; [`Namespace::run`] gives one of the networks.

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use limit_user::kernel::{Interface, PinRoot};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

/// A mount namespace with a bpffs of its own, for the calling thread and those that it starts.
#[derive(Debug)]
pub(crate) struct Sandbox {
    root: PinRoot,
}

impl Sandbox {
    /// Enters a new sandbox; the first thing that a test does.
    pub(crate) fn enter() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace needs CAP_SYS_ADMIN");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        mount(
            Some("bpf"),
            BPFFS,
            Some("bpf"),
            MsFlags::empty(),
            Some("mode=0700"),
        )
        .unwrap();
        let root = PinRoot::new(format!("{BPFFS}/limit-test-{}-{}", process::id(), number()));
        Self { root }
    }

    /// A pin root that no other test has.
    pub(crate) fn root(&self) -> &PinRoot {
        &self.root
    }
}

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let file = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs CAP_SYS_ADMIN");
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        let namespace = Self {
            file: file.join().unwrap(),
        };
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `work` on a thread in this namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let work = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            work.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip` with these words in this namespace.
    pub(crate) fn ip(&self, words: &str) {
        let output = self.run(|| Command::new("ip").args(words.split(' ')).output().unwrap());
        assert!(
            output.status.success(),
            "ip {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The interface with this name.
    pub(crate) fn interface(&self, name: &str) -> Interface {
        self.run(|| Interface::find(name).unwrap())
    }

    /// A path by which other programs reach this namespace while it lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }
}

/// Two namespaces and a cable: `server0` with 198.51.100.1 and 2001:db8::1, `client0` with
/// 198.51.100.2 and 2001:db8::2.
///
/// Neighbours are fixed and addresses are usable at once, so that of what a policy may name nothing
/// but a test's own packets is on the cable; multicast listener reports are.
#[derive(Debug)]
pub(crate) struct Cable {
    pub(crate) server: Namespace,
    pub(crate) client: Namespace,
}

impl Cable {
    pub(crate) fn new() -> Self {
        let (server, client) = (Namespace::new(), Namespace::new());
        let cable = Self { server, client };
        cable.add(0);
        cable
    }

    /// Lays a cable `server<n>` to `client<n>` in the networks 198.51.<100+n>.0/24 and 2001:db8:<n>::/64.
    pub(crate) fn add(&self, n: u8) {
        let path = self.client.path();
        self.server.ip(&format!(
            "link add server{n} address {} type veth peer name client{n} address {} netns {path}",
            mac(1, n),
            mac(2, n),
        ));
        for (namespace, name, own, other) in [
            (&self.server, "server", 1, 2),
            (&self.client, "client", 2, 1),
        ] {
            let network = 100 + n;
            let device = format!("{name}{n}");
            namespace.ip(&format!("link set {device} addrgenmode none"));
            namespace.ip(&format!("addr add 198.51.{network}.{own}/24 dev {device}"));
            namespace.ip(&format!(
                "-6 addr add 2001:db8:{n}::{own}/64 dev {device} nodad"
            ));
            namespace.ip(&format!("link set {device} up"));
            let lladdr = mac(other, n);
            for address in [
                format!("198.51.{network}.{other}"),
                format!("2001:db8:{n}::{other}"),
            ] {
                namespace.ip(&format!(
                    "neigh replace {address} lladdr {lladdr} dev {device}"
                ));
            }
        }
    }

    /// Sends `count` datagrams from the client to this port of the server, `pause` apart.
    pub(crate) fn send(&self, port: u16, count: u32, pause: Duration) {
        self.client.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let to = SocketAddr::new(server_address(), port);
            for sent in 0..count {
                // A port that nobody listens on answers with an error, which is none here.
                while let Err(error) = socket.send_to(&sent.to_be_bytes(), to) {
                    assert_eq!(
                        error.kind(),
                        std::io::ErrorKind::ConnectionRefused,
                        "{error}"
                    );
                }
                thread::sleep(pause);
            }
        });
    }
}

/// The server's address on the first cable.
pub(crate) const fn server_address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1))
}

/// Waits until `reached` says so; fails after a deadline that only a fault reaches.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(
            start.elapsed() < DEADLINE,
            "{what}: not within {DEADLINE:?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn mac(end: u8, n: u8) -> String {
    format!("02:00:00:00:{n:02x}:{end:02x}")
}

fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const BPFFS: &str = "/sys/fs/bpf";
const DEADLINE: Duration = Duration::from_secs(20);
