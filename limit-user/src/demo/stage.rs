//! Where the demo plays: mounts and two network namespaces that nobody else sees, and the cable.
//!
//! Namespaces and mounts live as long as the threads in them and the descriptors of this process, so
//! they go with it. bpffs is mounted over a folder that is there already, in a mount namespace of its
//! own: no folder is made that a killed process would leave behind.

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    path::Path,
    thread,
    time::Instant,
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

use super::{
    DemoError, PAUSE, READY_WITHIN, on_own_thread,
    sender::{self, Answer},
};
use crate::kernel::{Interface, KernelError, PinRoot, veth};

/// The stage; the thread that entered it is at the server's end.
#[derive(Debug)]
pub(super) struct Stage {
    root: PinRoot,
    interface: Interface,
    client: File,
    sources: Vec<IpAddr>,
    /// Lets the client's end take what the filter sends back.
    _answers: Option<OwnedFd>,
}

impl Stage {
    /// Moves the calling thread to the server's end of a new stage, whose cable carries traffic.
    pub(super) fn enter() -> Result<Self, DemoError> {
        move_to(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)?;
        let root = PinRoot::new(mount_bpffs()?.join("limit"));
        let client = on_own_thread(|| {
            move_to(CloneFlags::CLONE_NEWNET)?;
            File::open(NAMESPACE).map_err(DemoError::call(format!("open {NAMESPACE}")))
        })?;

        veth::add_pair(SERVER, CLIENT, client.as_fd())?;
        let interface = Interface::find(SERVER)?;
        veth::add_address(&interface, SERVER_V4.into(), PREFIX_V4)?;
        let has_ipv6 = add_where_there_is_ipv6(&interface)?;
        veth::set_up(&interface)?;

        let v6 = has_ipv6.then_some(SOURCE_V6.into());
        let sources: Vec<IpAddr> = SOURCES_V4.map(IpAddr::from).into_iter().chain(v6).collect();
        let answers = on_own_thread(|| {
            go_to(&client)?;
            lay_client_end(&sources)
        })?;
        Ok(Self {
            root,
            interface,
            client,
            sources,
            _answers: answers,
        })
    }

    /// Where the filter's pins are.
    pub(super) const fn root(&self) -> &PinRoot {
        &self.root
    }

    /// The server's end of the cable.
    pub(super) const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The addresses of the sources, the IPv6 one last.
    pub(super) fn sources(&self) -> &[IpAddr] {
        &self.sources
    }

    /// Where the server is, for each family that there is.
    pub(super) fn servers(&self, port: u16) -> Vec<SocketAddr> {
        let mut servers: Vec<SocketAddr> = self
            .sources
            .iter()
            .map(|source| server_of(*source, port))
            .collect();
        servers.dedup();
        servers
    }

    /// Moves the calling thread to the client's end.
    pub(super) fn go_to_client(&self) -> Result<(), DemoError> {
        go_to(&self.client)
    }
}

/// Where the server is, for this source.
pub(super) fn server_of(source: IpAddr, port: u16) -> SocketAddr {
    match source {
        IpAddr::V4(_) => SocketAddr::from((SERVER_V4, port)),
        IpAddr::V6(_) => SocketAddr::from((SERVER_V6, port)),
    }
}

/// Mounts bpffs where only this thread and those that it starts see it, and says where.
fn mount_bpffs() -> Result<&'static Path, DemoError> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let none = None::<&str>;
    mount(none, "/", none, private, none)
        .map_err(|errno| failed("keep the demo's mounts to itself", errno))?;
    let place = PLACES
        .into_iter()
        .map(Path::new)
        .find(|place| place.is_dir())
        .unwrap_or(Path::new(PLACES[0]));
    let (bpf, mode) = (Some("bpf"), Some("mode=0700"));
    mount(bpf, place, bpf, MsFlags::empty(), mode)
        .map_err(|errno| failed(&format!("mount bpffs over {}", place.display()), errno))?;
    Ok(place)
}

/// Gives the server its IPv6 address, unless IPv6 is turned off.
fn add_where_there_is_ipv6(interface: &Interface) -> Result<bool, DemoError> {
    match veth::add_address(interface, SERVER_V6.into(), PREFIX_V6) {
        Ok(()) => Ok(true),
        Err(KernelError::Call { source, .. })
            if matches!(
                source.raw_os_error(),
                Some(libc::EACCES | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The client's end: its addresses, what takes the filter's resets, and a first round trip of each
/// source, so that neighbours are known before anything is measured.
fn lay_client_end(sources: &[IpAddr]) -> Result<Option<OwnedFd>, DemoError> {
    let interface = Interface::find(CLIENT)?;
    for source in sources {
        let length = if source.is_ipv4() {
            PREFIX_V4
        } else {
            PREFIX_V6
        };
        veth::add_address(&interface, *source, length)?;
    }
    veth::set_up(&interface)?;
    let answers = veth::take_answers(&interface)?;
    for source in sources {
        await_round_trip(*source)?;
    }
    Ok(answers)
}

fn await_round_trip(source: IpAddr) -> Result<(), DemoError> {
    let start = Instant::now();
    while start.elapsed() < READY_WITHIN {
        // Nobody listens there: to be refused is to have been there and back.
        if sender::knock(source, server_of(source, SILENT_PORT)).ok() == Some(Answer::Refused) {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(DemoError::Unreachable { address: source })
}

fn move_to(namespaces: CloneFlags) -> Result<(), DemoError> {
    unshare(namespaces).map_err(|errno| failed("make the demo's namespaces", errno))
}

fn go_to(namespace: &File) -> Result<(), DemoError> {
    setns(namespace, CloneFlags::CLONE_NEWNET)
        .map_err(|errno| failed("enter the client's network namespace", errno))
}

/// The error of a call that needs CAP_SYS_ADMIN, which is there: it was asked for.
fn failed(action: &str, errno: Errno) -> DemoError {
    let action = action.to_owned();
    if errno == Errno::EPERM {
        return KernelError::Forbidden { action }.into();
    }
    DemoError::Call {
        action,
        source: errno.into(),
    }
}

/// Folders that bpffs may be mounted over, best first: nothing that the demo reads is below them.
const PLACES: [&str; 3] = ["/sys/fs/bpf", "/mnt", "/tmp"];

/// The calling thread's namespace; `/proc/self` would be the main thread's.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

const SERVER: &str = "server0";
const CLIENT: &str = "client0";

/// Addresses for documentation (RFC 5737, RFC 3849).
const SERVER_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const SOURCES_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(198, 51, 100, 2),
    Ipv4Addr::new(198, 51, 100, 3),
    Ipv4Addr::new(198, 51, 100, 4),
];
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);
const PREFIX_V4: u8 = 24;
const PREFIX_V6: u8 = 64;

/// A port at which nobody listens.
const SILENT_PORT: u16 = 9;
