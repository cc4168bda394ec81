//! Asking the kernel about network devices over netlink, one request and its answers at a time.
//!
//! The socket is a plain blocking one: the kernel answers a request before it takes the next.

use std::io;

use rtnetlink::{
    packet_core::{
        NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
        NlaBuffer, NlasIterator,
    },
    packet_route::{
        RouteNetlinkMessage,
        link::{
            InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp,
            XdpAttached,
        },
    },
    sys::{
        Socket, SocketAddr,
        protocols::{NETLINK_GENERIC, NETLINK_ROUTE},
    },
};

use super::{
    attach::Mode,
    error::KernelError,
    links::{AttachedProgram, Interface, Kind},
};

/// The interface with this name.
pub(super) fn link_by_name(name: &str) -> Result<Option<Interface>, KernelError> {
    let mut request = LinkMessage::default();
    request
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    one_link(request)
}

/// The interface with this index.
pub(super) fn link_by_index(index: u32) -> Result<Option<Interface>, KernelError> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    one_link(request)
}

/// Every interface, by index.
pub(super) fn links() -> Result<Vec<Interface>, KernelError> {
    let answers = ask_about_links(LinkMessage::default(), NLM_F_DUMP)
        .map_err(|error| KernelError::call("list the interfaces", error))?;
    let mut links: Vec<Interface> = answers.iter().map(interface).collect();
    links.sort_unstable_by_key(|link| link.index);
    Ok(links)
}

/// XDP features that the driver of an interface announces: `NETDEV_XDP_ACT_*` bits, or `None` if
/// the kernel does not tell (before Linux 6.3).
pub(super) fn xdp_features(index: u32) -> Result<Option<u64>, KernelError> {
    ask_xdp_features(index)
        .map_err(|error| KernelError::call("ask for the XDP features of a driver", error))
}

fn one_link(request: LinkMessage) -> Result<Option<Interface>, KernelError> {
    match ask_about_links(request, 0) {
        Ok(answers) => Ok(answers.first().map(interface)),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(KernelError::call("look up an interface", error)),
    }
}

fn ask_about_links(request: LinkMessage, flags: u16) -> io::Result<Vec<LinkMessage>> {
    let payload = NetlinkPayload::from(RouteNetlinkMessage::GetLink(request));
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let mut links = Vec::new();
    exchange(NETLINK_ROUTE, &bytes, &mut |answer| {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer);
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) =
            message.map_err(io::Error::other)?.payload
        {
            links.push(link);
        }
        Ok(())
    })?;
    Ok(links)
}

/// Sends one request and shows every message of the answer to `visit`.
pub(super) fn exchange(
    protocol: isize,
    request: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(request, 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !rest.is_empty() {
            let length = NetlinkBuffer::new_checked(rest)
                .map_err(io::Error::other)?
                .length();
            let Some(message) = rest.get(..length as usize) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let header = NetlinkBuffer::new(message);
            match header.message_type() {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = message.get(16..).and_then(<[u8]>::first_chunk);
                    return match code.map(|code| i32::from_ne_bytes(*code)) {
                        Some(0) | None => Ok(()),
                        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    };
                }
                _ => visit(message)?,
            }
            if header.flags() & NLM_F_MULTI == 0 {
                return Ok(());
            }
            rest = rest
                .get((length as usize).next_multiple_of(4)..)
                .unwrap_or_default();
        }
    }
}

fn interface(link: &LinkMessage) -> Interface {
    let layer = link.header.link_layer_type;
    let mut found = Interface {
        index: link.header.index,
        name: String::new(),
        mtu: 0,
        kind: if layer == LinkLayerType::Loopback {
            Kind::Loopback
        } else {
            Kind::Device
        },
        has_ethernet: matches!(layer, LinkLayerType::Ether | LinkLayerType::Loopback),
        is_up: link.header.flags.contains(LinkFlags::Up),
        controller: None,
        lower: None,
        receive_queues: 0,
        transmit_queues: 0,
        programs: Vec::new(),
    };
    // With a namespace beside it, the index of the device below counts there.
    let is_elsewhere = |attribute: &_| matches!(attribute, LinkAttribute::LinkNetNsId(_));
    let is_here = !link.attributes.iter().any(is_elsewhere);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => found.mtu = *mtu,
            LinkAttribute::Controller(index) => found.controller = Some(*index),
            LinkAttribute::Link(index) => found.lower = is_here.then_some(*index),
            LinkAttribute::NumRxQueues(queues) => found.receive_queues = *queues,
            LinkAttribute::NumTxQueues(queues) => found.transmit_queues = *queues,
            LinkAttribute::LinkInfo(infos) => {
                if let Some(kind) = infos.iter().find_map(kind) {
                    found.kind = kind;
                }
            }
            LinkAttribute::Xdp(parts) => found.programs = programs(parts),
            _ => {}
        }
    }
    found
}

fn kind(info: &LinkInfo) -> Option<Kind> {
    let LinkInfo::Kind(kind) = info else {
        return None;
    };
    Some(match kind {
        InfoKind::Veth => Kind::Veth,
        InfoKind::Bridge => Kind::Bridge,
        InfoKind::Bond | InfoKind::Team => Kind::Bond,
        InfoKind::Vlan => Kind::Vlan,
        InfoKind::Tun => Kind::Tun,
        other => Kind::Other(other.to_string()),
    })
}

/// The programs that `IFLA_XDP` names; with one only, its id comes without its mode beside it.
fn programs(parts: &[LinkXdp]) -> Vec<AttachedProgram> {
    let mut found: Vec<AttachedProgram> = parts
        .iter()
        .filter_map(|part| match part {
            LinkXdp::DrvProgId(id) => Some(AttachedProgram {
                id: *id,
                mode: Mode::Native,
            }),
            LinkXdp::SkbProgId(id) => Some(AttachedProgram {
                id: *id,
                mode: Mode::Generic,
            }),
            LinkXdp::HwProgId(id) => Some(AttachedProgram {
                id: *id,
                mode: Mode::Offloaded,
            }),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        let mode = parts.iter().find_map(|part| match part {
            LinkXdp::Attached(XdpAttached::Driver) => Some(Mode::Native),
            LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(Mode::Generic),
            LinkXdp::Attached(XdpAttached::Hardware) => Some(Mode::Offloaded),
            _ => None,
        });
        let id = parts.iter().find_map(|part| match part {
            LinkXdp::ProgId(id) => Some(*id),
            _ => None,
        });
        found.extend(mode.zip(id).map(|(mode, id)| AttachedProgram { id, mode }));
    }
    found
}

/// The `netdev` family of generic netlink, `NETDEV_CMD_DEV_GET`.
fn ask_xdp_features(index: u32) -> io::Result<Option<u64>> {
    let name = attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let mut family = None;
    let asked = exchange(
        NETLINK_GENERIC,
        &generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &name),
        &mut |answer| {
            family = find(answer, CTRL_ATTR_FAMILY_ID)
                .and_then(|value| value.try_into().ok())
                .map(u16::from_ne_bytes);
            Ok(())
        },
    );
    match asked {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        asked => asked?,
    }
    let Some(family) = family else {
        return Ok(None);
    };
    let device = attribute(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let mut features = None;
    exchange(
        NETLINK_GENERIC,
        &generic(family, NETDEV_CMD_DEV_GET, &device),
        &mut |answer| {
            features = find(answer, NETDEV_A_DEV_XDP_FEATURES)
                .and_then(|value| value.try_into().ok())
                .map(u64::from_ne_bytes);
            Ok(())
        },
    )?;
    Ok(features)
}

/// A generic netlink request with one attribute.
fn generic(family: u16, command: u8, attribute: &[u8]) -> Vec<u8> {
    let length = u32::try_from(GENERIC_HEADER + attribute.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(GENERIC_HEADER + attribute.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend(attribute);
    bytes
}

/// One attribute, padded to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(usize::from(length).next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of an attribute in a generic netlink message.
fn find(message: &[u8], kind: u16) -> Option<&[u8]> {
    let attributes = NlasIterator::new(message.get(GENERIC_HEADER..)?);
    let found: Option<NlaBuffer<&[u8]>> = attributes
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == kind);
    found.map(|attribute| attribute.into_inner().get(4..).unwrap_or_default())
}

/// The headers of netlink and of generic netlink.
const GENERIC_HEADER: usize = 20;

const NLM_F_MULTI: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_loopback_by_name_and_by_index() {
        let by_name = link_by_name("lo").unwrap().unwrap();
        assert_eq!(by_name.kind, Kind::Loopback);
        assert!(by_name.has_ethernet && by_name.mtu >= 1500);
        assert_eq!(link_by_index(by_name.index).unwrap(), Some(by_name.clone()));
        assert!(links().unwrap().contains(&by_name));
    }

    #[test]
    fn finds_nothing_under_a_name_that_is_not_there() {
        assert_eq!(link_by_name("no-such-device").unwrap(), None);
        assert_eq!(link_by_index(u32::MAX >> 1).unwrap(), None);
    }

    #[test]
    fn takes_no_device_of_another_namespace_for_the_one_below() {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::Link(7));
        assert_eq!(interface(&link).lower, Some(7));
        link.attributes.push(LinkAttribute::LinkNetNsId(0));
        assert_eq!(interface(&link).lower, None);
    }

    #[test]
    fn reads_one_program_and_several() {
        let one = [
            LinkXdp::Attached(XdpAttached::SocketBuffer),
            LinkXdp::ProgId(7),
        ];
        assert_eq!(
            programs(&one),
            [AttachedProgram {
                id: 7,
                mode: Mode::Generic
            }]
        );
        let two = [LinkXdp::DrvProgId(7), LinkXdp::SkbProgId(8)];
        assert_eq!(programs(&two).len(), 2);
        assert!(programs(&[LinkXdp::Attached(XdpAttached::None)]).is_empty());
    }

    #[test]
    fn asks_for_features_whether_or_not_the_kernel_tells() {
        let loopback = link_by_name("lo").unwrap().unwrap();
        assert!(xdp_features(loopback.index).is_ok());
    }
}
