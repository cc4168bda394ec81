//! One row a kind of frame: what it is, the frame, and what the parser makes of them.

#[path = "table/fragments.rs"]
mod fragments;
#[path = "table/network.rs"]
mod network;
#[path = "table/transport.rs"]
mod transport;

use limit_common::{
    key::Address,
    packet::{Packet, ParseError, Payload},
    verdict::Reason,
};

use super::frames::{
    Extension, Frame, SOURCE_V4, SOURCE_V6,
    transport::{SYN, Transport, tcp},
};

/// One kind of frame.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) description: &'static str,
    pub(crate) frame: Frame,
    pub(crate) expected: Result<Packet, ParseError>,
}

/// Every row; the frames come from [`SOURCE_V4`] or [`SOURCE_V6`].
pub(crate) fn table() -> Vec<Row> {
    [
        network::ethernet(),
        network::ipv4(),
        network::ipv6(),
        fragments::ipv4(),
        fragments::ipv6(),
        transport::tcp_segments(),
        transport::others(),
        transport::control(),
    ]
    .concat()
}

fn syn() -> Transport {
    tcp(80, SYN)
}

fn hop_by_hop() -> Extension {
    Extension::HopByHop(vec![1, 4])
}

fn destination() -> Extension {
    Extension::Destination(vec![1, 4])
}

fn v4(description: &'static str, frame: Frame, payload: Payload) -> Row {
    let expected = Ok(Packet {
        source: Address::V4(SOURCE_V4),
        payload,
    });
    Row {
        description,
        frame,
        expected,
    }
}

fn v6(description: &'static str, frame: Frame, payload: Payload) -> Row {
    let expected = Ok(Packet {
        source: Address::V6(SOURCE_V6),
        payload,
    });
    Row {
        description,
        frame,
        expected,
    }
}

fn error(description: &'static str, frame: Frame, error: ParseError) -> Row {
    Row {
        description,
        frame,
        expected: Err(error),
    }
}

const OPENS: Payload = Payload::Tcp {
    port: 80,
    opens: true,
};
const SEGMENT: Payload = Payload::Tcp {
    port: 80,
    opens: false,
};
const UDP: Payload = Payload::Udp { port: 53 };
const LATER: Payload = Payload::LaterFragment;
const CUT: Payload = Payload::Unknown(Reason::FragmentHeader);
const CHAIN: Payload = Payload::Unknown(Reason::ExtensionChain);
const NETWORK: ParseError = ParseError::NetworkHeader;
const TRANSPORT: ParseError = ParseError::TransportHeader;
