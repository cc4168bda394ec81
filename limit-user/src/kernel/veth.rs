//! A virtual cable between two network namespaces: made, addressed, brought up.
//!
//! Nothing here has a name outside the two namespaces, and a cable goes with either of them.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
        NetlinkPayload,
    },
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
        link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    },
    sys::protocols::NETLINK_ROUTE,
};

use super::{
    error::KernelError,
    links::Interface,
    netlink, probe,
    sys::{self, XdpFlags},
};

/// Lays a cable from `name` in the calling thread's namespace to `peer` in another one.
pub fn add_pair(name: &str, peer: &str, peer_namespace: BorrowedFd<'_>) -> Result<(), KernelError> {
    let mut other_end = LinkMessage::default();
    other_end.attributes = vec![
        LinkAttribute::IfName(peer.to_owned()),
        LinkAttribute::NetNsFd(peer_namespace.as_raw_fd()),
    ];
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other_end))),
        ]),
    ];
    command(
        RouteNetlinkMessage::NewLink(link),
        NLM_F_CREATE | NLM_F_EXCL,
    )
    .map_err(|error| KernelError::call(format!("lay a cable from {name} to {peer}"), error))
}

/// Gives an interface an address that is usable at once: nobody else on the cable could have it.
pub fn add_address(
    interface: &Interface,
    address: IpAddr,
    prefix_length: u8,
) -> Result<(), KernelError> {
    let mut message = AddressMessage::default();
    message.header.family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.header.prefix_len = prefix_length;
    message.header.flags = AddressHeaderFlags::Nodad;
    message.header.index = interface.index;
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    command(
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )
    .map_err(|error| KernelError::call(format!("give {interface} the address {address}"), error))
}

/// Brings an interface up.
pub fn set_up(interface: &Interface) -> Result<(), KernelError> {
    let mut link = LinkMessage::default();
    link.header.index = interface.index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    command(RouteNetlinkMessage::SetLink(link), 0)
        .map_err(|error| KernelError::call(format!("bring {interface} up"), error))
}

/// Lets an end of a cable take what a native XDP program at the other end sends back: it does so only
/// while it has an XDP program too, and one that passes everything will do.
///
/// `None` if the end takes no native program; a generic one at the other end needs none here. The end
/// keeps the program for as long as the descriptor lives.
pub fn take_answers(interface: &Interface) -> Result<Option<OwnedFd>, KernelError> {
    let program = sys::program_load(&probe::PASS, 0)
        .map_err(|error| KernelError::call("load a program that passes everything", error))?;
    match sys::link_create(program.as_fd(), interface.index, XdpFlags::Native) {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        Err(error) => Err(KernelError::call(
            format!("let {interface} pass everything"),
            error,
        )),
    }
}

/// Has the kernel do something and say whether it did.
fn command(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    netlink::exchange(NETLINK_ROUTE, &bytes, &mut |_| Ok(()))
}
