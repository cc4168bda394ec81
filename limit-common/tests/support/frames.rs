//! Frames for tests, built field by field, with right checksums unless a field is set by hand.
//!
//! Plain `std`, so that every test binary of the workspace can include this file by path. A field that
//! is an `Option` is computed when `None`; `Some` writes that value, however wrong.

#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "transport.rs"]
pub(crate) mod transport;

use std::net::IpAddr;

use transport::{Transport, checksum, low_byte, low_half, padded};

/// A frame to be built. [`Frame::bytes`] gives its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    /// Tag protocol and tag control of each tag, outermost first.
    pub(crate) tags: Vec<(u16, u16)>,
    /// Type after the tags.
    pub(crate) ethertype: Option<u16>,
    pub(crate) body: Body,
    /// Zeros after the packet, as in the padding of a short frame.
    pub(crate) padding: usize,
    /// Only so many bytes of all that.
    pub(crate) length: Option<usize>,
}

/// What an Ethernet frame carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Ipv4(Ipv4),
    Ipv6(Ipv6),
    Arp(Arp),
    /// A type and whatever bytes.
    Raw(u16, Vec<u8>),
}

/// An IPv4 packet.
#[derive(Clone, Debug)]
pub(crate) struct Ipv4 {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) version: u8,
    /// Header length in words; `options` gives it otherwise.
    pub(crate) words: Option<u8>,
    pub(crate) total_length: Option<u16>,
    pub(crate) identification: u16,
    /// Flags and fragment offset, as in the header.
    pub(crate) fragment: u16,
    pub(crate) ttl: u8,
    pub(crate) protocol: Option<u8>,
    pub(crate) checksum: Option<u16>,
    /// Padded with zeros to whole words.
    pub(crate) options: Vec<u8>,
    pub(crate) transport: Transport,
    /// Bytes of the transport header and data that this packet carries: all, or a fragment's part.
    pub(crate) part: Part,
}

/// An IPv6 packet.
#[derive(Clone, Debug)]
pub(crate) struct Ipv6 {
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) version: u8,
    pub(crate) payload_length: Option<u16>,
    pub(crate) next_header: Option<u8>,
    pub(crate) hop_limit: u8,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) transport: Transport,
    pub(crate) part: Part,
}

/// The part of the transport bytes that a packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) start: usize,
    /// `None` for the rest.
    pub(crate) length: Option<usize>,
}

/// An IPv6 extension header.
#[derive(Clone, Debug)]
pub(crate) enum Extension {
    /// Options, padded with zeros (Pad1) to a whole header.
    HopByHop(Vec<u8>),
    Destination(Vec<u8>),
    /// Routing type, segments left, and the data after them, padded like options.
    Routing(u8, u8, Vec<u8>),
    /// Offset in units of 8 bytes, more fragments, identification.
    Fragment(u16, bool, u32),
    /// Bytes of the integrity check value, a multiple of 8 bytes less 4.
    Authentication(usize),
    /// Number of the header, and its bytes after the next header field.
    Raw(u8, Vec<u8>),
}

/// An ARP request or reply for IPv4 over Ethernet.
#[derive(Clone, Debug)]
pub(crate) struct Arp {
    pub(crate) operation: u16,
    pub(crate) sender: [u8; 4],
    pub(crate) target: [u8; 4],
}

pub(crate) const CUSTOMER_TAG: u16 = 0x8100;
pub(crate) const SERVICE_TAG: u16 = 0x88a8;

/// IPv4: more fragments follow.
pub(crate) const MORE: u16 = 0x2000;

/// The source of IPv4 frames, unless a test says otherwise.
pub(crate) const SOURCE_V4: [u8; 4] = [198, 51, 100, 7];
/// The destination of IPv4 frames.
pub(crate) const DESTINATION_V4: [u8; 4] = [192, 0, 2, 1];
/// The source of IPv6 frames: 2001:db8:1:2::7.
pub(crate) const SOURCE_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7];
/// The destination of IPv6 frames: 2001:db8::1.
pub(crate) const DESTINATION_V6: [u8; 16] =
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

impl Frame {
    /// An untagged IPv4 frame from [`SOURCE_V4`].
    pub(crate) fn ipv4(transport: Transport) -> Self {
        Self::new(Body::Ipv4(Ipv4::new(transport)))
    }

    /// An untagged IPv6 frame from [`SOURCE_V6`].
    pub(crate) fn ipv6(transport: Transport) -> Self {
        Self::new(Body::Ipv6(Ipv6::new(transport)))
    }

    /// An untagged frame between locally administered addresses.
    pub(crate) fn new(body: Body) -> Self {
        Self {
            destination: [2, 0, 0, 0, 0, 1],
            source: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            ethertype: None,
            body,
            padding: 0,
            length: None,
        }
    }

    /// The same, of which only the first `length` bytes arrive.
    pub(crate) fn cut(self, length: usize) -> Self {
        Self {
            length: Some(length),
            ..self
        }
    }

    /// The same with so many zeros after the packet.
    pub(crate) fn padded(self, padding: usize) -> Self {
        Self { padding, ..self }
    }

    /// The same with these tags, outermost first.
    pub(crate) fn tagged(mut self, tags: &[(u16, u16)]) -> Self {
        self.tags = tags.to_vec();
        self
    }

    /// The same with these IPv6 extension headers.
    pub(crate) fn extended(self, extensions: Vec<Extension>) -> Self {
        self.with_ipv6(|packet| packet.extensions = extensions)
    }

    /// The same from this address, which has the family of the packet.
    pub(crate) fn sent_by(mut self, source: impl Into<IpAddr>) -> Self {
        match (&mut self.body, source.into()) {
            (Body::Ipv4(packet), IpAddr::V4(source)) => packet.source = source.octets(),
            (Body::Ipv6(packet), IpAddr::V6(source)) => packet.source = source.octets(),
            (body, source) => panic!("{source} in {body:?}"),
        }
        self
    }

    /// The same to this address, which has the family of the packet.
    pub(crate) fn sent_to(mut self, destination: impl Into<IpAddr>) -> Self {
        match (&mut self.body, destination.into()) {
            (Body::Ipv4(packet), IpAddr::V4(to)) => packet.destination = to.octets(),
            (Body::Ipv6(packet), IpAddr::V6(to)) => packet.destination = to.octets(),
            (body, to) => panic!("{to} in {body:?}"),
        }
        self
    }

    /// The same with the IPv4 packet changed.
    pub(crate) fn with_ipv4(mut self, change: impl FnOnce(&mut Ipv4)) -> Self {
        let Body::Ipv4(packet) = &mut self.body else {
            panic!("no IPv4 packet: {self:?}")
        };
        change(packet);
        self
    }

    /// The same with the IPv6 packet changed.
    pub(crate) fn with_ipv6(mut self, change: impl FnOnce(&mut Ipv6)) -> Self {
        let Body::Ipv6(packet) = &mut self.body else {
            panic!("no IPv6 packet: {self:?}")
        };
        change(packet);
        self
    }

    /// The same with only this part of the transport bytes; their checksum stays that of the whole.
    pub(crate) fn part(mut self, start: usize, length: Option<usize>) -> Self {
        let part = Part { start, length };
        match &mut self.body {
            Body::Ipv4(packet) => packet.part = part,
            Body::Ipv6(packet) => packet.part = part,
            Body::Arp(_) | Body::Raw(..) => panic!("no IP packet: {self:?}"),
        }
        self
    }

    /// The same as the first fragment, with the first `length` transport bytes.
    pub(crate) fn first_fragment(mut self, length: usize) -> Self {
        match &mut self.body {
            Body::Ipv4(packet) => packet.fragment = MORE,
            Body::Ipv6(packet) => packet.extensions.push(Extension::Fragment(0, true, 7)),
            Body::Arp(_) | Body::Raw(..) => panic!("no IP packet: {self:?}"),
        }
        self.part(0, Some(length))
    }

    /// The same as the last fragment, with the transport bytes from `units` times 8 on.
    pub(crate) fn last_fragment(mut self, units: u16) -> Self {
        match &mut self.body {
            Body::Ipv4(packet) => packet.fragment = units,
            Body::Ipv6(packet) => packet.extensions.push(Extension::Fragment(units, false, 7)),
            Body::Arp(_) | Body::Raw(..) => panic!("no IP packet: {self:?}"),
        }
        self.part(usize::from(units) * 8, None)
    }

    /// The bytes from the destination address to the end of the padding.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (ethertype, body) = match &self.body {
            Body::Ipv4(packet) => (0x0800, packet.bytes()),
            Body::Ipv6(packet) => (0x86dd, packet.bytes()),
            Body::Arp(arp) => (0x0806, arp.bytes(self.source)),
            Body::Raw(ethertype, bytes) => (*ethertype, bytes.clone()),
        };
        let mut bytes = [self.destination, self.source].concat();
        for (protocol, control) in &self.tags {
            bytes.extend(protocol.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        bytes.extend(self.ethertype.unwrap_or(ethertype).to_be_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len() + self.padding, 0);
        bytes.truncate(self.length.unwrap_or(usize::MAX));
        bytes
    }
}

impl Ipv4 {
    /// A packet from [`SOURCE_V4`] to [`DESTINATION_V4`].
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            source: SOURCE_V4,
            destination: DESTINATION_V4,
            version: 4,
            words: None,
            total_length: None,
            identification: 7,
            fragment: 0,
            ttl: 64,
            protocol: None,
            checksum: None,
            options: Vec::new(),
            transport,
            part: Part::ALL,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let pseudo = [&self.source[..], &self.destination].concat();
        let (protocol, transport) = self.transport.bytes(&pseudo);
        let transport = self.part.of(&transport);
        let options = padded(&self.options, 4, 0);
        let length = 20 + options.len();
        let words = self.words.unwrap_or(low_byte(length / 4));
        let total = self
            .total_length
            .unwrap_or(low_half(length + transport.len()));

        let mut header = vec![self.version << 4 | (words & 0x0f), 0];
        header.extend(total.to_be_bytes());
        header.extend(self.identification.to_be_bytes());
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, self.protocol.unwrap_or(protocol), 0, 0]);
        header.extend(pseudo);
        header.extend(options);
        let checksum = self.checksum.unwrap_or_else(|| checksum(&header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header.extend(transport);
        header
    }
}

impl Ipv6 {
    /// A packet from [`SOURCE_V6`] to [`DESTINATION_V6`].
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            source: SOURCE_V6,
            destination: DESTINATION_V6,
            version: 6,
            payload_length: None,
            next_header: None,
            hop_limit: 64,
            extensions: Vec::new(),
            transport,
            part: Part::ALL,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let pseudo = [&self.source[..], &self.destination].concat();
        let (protocol, transport) = self.transport.bytes(&pseudo);
        let mut payload = self.part.of(&transport).to_vec();
        let mut next = protocol;
        for extension in self.extensions.iter().rev() {
            let (number, rest) = extension.bytes();
            payload.splice(0..0, [vec![next], rest].concat());
            next = number;
        }

        let mut bytes = vec![self.version << 4, 0, 0, 0];
        bytes.extend(
            self.payload_length
                .unwrap_or(low_half(payload.len()))
                .to_be_bytes(),
        );
        bytes.extend([self.next_header.unwrap_or(next), self.hop_limit]);
        bytes.extend(pseudo);
        bytes.extend(payload);
        bytes
    }
}

impl Part {
    /// All transport bytes.
    pub(crate) const ALL: Self = Self {
        start: 0,
        length: None,
    };

    fn of(self, bytes: &[u8]) -> &[u8] {
        let rest = &bytes[self.start.min(bytes.len())..];
        &rest[..self.length.unwrap_or(rest.len()).min(rest.len())]
    }
}

impl Extension {
    /// The number of the header, and its bytes after the next header field.
    fn bytes(&self) -> (u8, Vec<u8>) {
        let with_length = |body: &[u8]| {
            let body = padded(body, 8, 2);
            [vec![low_byte((body.len() + 2) / 8 - 1)], body].concat()
        };
        match self {
            Self::HopByHop(options) => (0, with_length(options)),
            Self::Destination(options) => (60, with_length(options)),
            Self::Routing(kind, left, data) => {
                (43, with_length(&[&[*kind, *left], &data[..]].concat()))
            }
            Self::Fragment(units, more, identification) => {
                let mut rest = vec![0];
                rest.extend((units << 3 | u16::from(*more)).to_be_bytes());
                rest.extend(identification.to_be_bytes());
                (44, rest)
            }
            Self::Authentication(length) => {
                let mut rest = vec![low_byte((12 + length) / 4 - 2)];
                rest.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
                rest.resize(11 + length, 0);
                (51, rest)
            }
            Self::Raw(number, rest) => (*number, rest.clone()),
        }
    }
}

impl Arp {
    fn bytes(&self, sender: [u8; 6]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 8, 0, 6, 4];
        bytes.extend(self.operation.to_be_bytes());
        bytes.extend(sender);
        bytes.extend(self.sender);
        bytes.extend([0; 6]);
        bytes.extend(self.target);
        bytes
    }
}
