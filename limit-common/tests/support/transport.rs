//! What IP packets carry in tests: TCP, UDP, ICMP, ICMPv6, or any bytes.

/// What an IP packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp(Tcp),
    Udp(Udp),
    Icmp(Icmp),
    Icmpv6(Icmp),
    /// A protocol number and whatever bytes.
    Raw(u8, Vec<u8>),
}

/// A TCP segment.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    /// Header length in words; `options` gives it otherwise.
    pub(crate) words: Option<u8>,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) checksum: Option<u16>,
    /// Padded with zeros to whole words.
    pub(crate) options: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// A UDP datagram.
#[derive(Clone, Debug)]
pub(crate) struct Udp {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) length: Option<u16>,
    pub(crate) checksum: Option<u16>,
    pub(crate) data: Vec<u8>,
}

/// An ICMP or ICMPv6 message.
#[derive(Clone, Debug)]
pub(crate) struct Icmp {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) checksum: Option<u16>,
    /// Everything after the checksum.
    pub(crate) rest: Vec<u8>,
}

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

/// A TCP segment to `port` with these flags.
pub(crate) fn tcp(port: u16, flags: u8) -> Transport {
    Transport::Tcp(Tcp::new(port, flags))
}

/// A UDP datagram to `port`, with 12 bytes of data.
pub(crate) fn udp(port: u16) -> Transport {
    Transport::Udp(Udp::new(port))
}

/// An ICMP message for IPv4.
pub(crate) fn icmp(kind: u8, code: u8) -> Transport {
    Transport::Icmp(Icmp::new(kind, code))
}

/// An ICMPv6 message.
pub(crate) fn icmpv6(kind: u8, code: u8) -> Transport {
    Transport::Icmpv6(Icmp::new(kind, code))
}

impl Transport {
    /// The protocol number and the bytes, with a checksum over the addresses in `pseudo`.
    pub(crate) fn bytes(&self, pseudo: &[u8]) -> (u8, Vec<u8>) {
        match self {
            Self::Tcp(tcp) => (6, tcp.bytes(pseudo)),
            Self::Udp(udp) => (17, udp.bytes(pseudo)),
            Self::Icmp(icmp) => (1, icmp.bytes(&[])),
            Self::Icmpv6(icmp) => (58, icmp.bytes(pseudo)),
            Self::Raw(protocol, bytes) => (*protocol, bytes.clone()),
        }
    }
}

impl Tcp {
    /// A segment from port 40000, without options or data.
    pub(crate) fn new(destination_port: u16, flags: u8) -> Self {
        Self {
            source_port: 40_000,
            destination_port,
            sequence: 0x0102_0304,
            acknowledgement: 0,
            words: None,
            flags,
            window: 64_240,
            checksum: None,
            options: Vec::new(),
            data: Vec::new(),
        }
    }

    fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let options = padded(&self.options, 4, 0);
        let words = self.words.unwrap_or(low_byte((20 + options.len()) / 4));
        let mut bytes = [
            self.source_port.to_be_bytes(),
            self.destination_port.to_be_bytes(),
        ]
        .concat();
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgement.to_be_bytes());
        bytes.extend([words << 4, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(options);
        bytes.extend(&self.data);
        let checksum = self
            .checksum
            .unwrap_or_else(|| with_pseudo(pseudo, 6, &bytes));
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

impl Udp {
    /// A datagram from port 40000, with 12 bytes of data.
    pub(crate) fn new(destination_port: u16) -> Self {
        Self {
            source_port: 40_000,
            destination_port,
            length: None,
            checksum: None,
            data: vec![0xda; 12],
        }
    }

    fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let mut bytes = [
            self.source_port.to_be_bytes(),
            self.destination_port.to_be_bytes(),
        ]
        .concat();
        bytes.extend(
            self.length
                .unwrap_or(low_half(8 + self.data.len()))
                .to_be_bytes(),
        );
        bytes.extend([0; 2]);
        bytes.extend(&self.data);
        let checksum = self
            .checksum
            .unwrap_or_else(|| match with_pseudo(pseudo, 17, &bytes) {
                0 => 0xffff,
                sum => sum,
            });
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

impl Icmp {
    /// A message with 12 bytes after its checksum.
    pub(crate) fn new(kind: u8, code: u8) -> Self {
        Self {
            kind,
            code,
            checksum: None,
            rest: vec![0; 12],
        }
    }

    /// `pseudo` is empty for IPv4, whose ICMP sums no addresses.
    fn bytes(&self, pseudo: &[u8]) -> Vec<u8> {
        let mut bytes = vec![self.kind, self.code, 0, 0];
        bytes.extend(&self.rest);
        let checksum = self.checksum.unwrap_or_else(|| match pseudo {
            [] => checksum(&bytes),
            pseudo => with_pseudo(pseudo, 58, &bytes),
        });
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// The Internet checksum (RFC 1071).
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !low_half(sum as usize)
}

/// The checksum over addresses, protocol, length and `bytes`; both families sum to the same.
fn with_pseudo(pseudo: &[u8], protocol: u8, bytes: &[u8]) -> u16 {
    let mut all = pseudo.to_vec();
    let [.., a, b, c, d] = bytes.len().to_be_bytes();
    all.extend([a, b, c, d, 0, 0, 0, protocol]);
    all.extend(bytes);
    checksum(&all)
}

/// `bytes` and zeros, so that `extra` more would make a multiple of `unit`.
pub(crate) fn padded(bytes: &[u8], unit: usize, extra: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize((bytes.len() + extra).next_multiple_of(unit) - extra, 0);
    bytes
}

pub(crate) fn low_byte(value: usize) -> u8 {
    value.to_be_bytes()[size_of::<usize>() - 1]
}

pub(crate) fn low_half(value: usize) -> u16 {
    let [.., high, low] = value.to_be_bytes();
    u16::from_be_bytes([high, low])
}
