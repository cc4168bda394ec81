//! The cases: which frame meets which policies, and what has to come of it.

use std::{net::IpAddr, rc::Rc};

use anyhow::{Result, ensure};
use ipnet::IpNet;
use limit_common::{
    counters::{Counter, Effect},
    layout::DEFAULT_MAX_SOURCES,
    verdict::Reason,
};
use limit_user::kernel::{
    List,
    assembled::{Assembled, TailCall},
    object::Loaded,
};

use crate::{
    assembly::{PASS, Sources, answer, vary},
    filter,
    frames::{
        Frame, SOURCE_V4,
        transport::{ACK, SYN, tcp, udp},
    },
};

/// A frame and the program that it meets.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    loaded: Rc<Loaded>,
    frame: Vec<u8>,
    varied: Option<Varied>,
    expected: Counter,
}

/// Programs that give the frame another source at each run, and then go on.
struct Varied {
    /// In the filter.
    filter: Assembled,
    /// In an empty program.
    empty: Assembled,
    /// The ways there, which are lost when these are dropped.
    _tail_calls: [TailCall; 2],
}

impl Case {
    /// Nanoseconds of one run, beside an empty program that takes `base`.
    ///
    /// What it costs to vary the source is taken off.
    pub(crate) fn run(&mut self, repeat: u32, base: f64) -> Result<f64> {
        let Some(varied) = &self.varied else {
            let run = self.loaded.repeat(&mut self.frame, repeat)?;
            return Ok(f64::from(run.nanoseconds));
        };
        let aside = varied.empty.run(&mut self.frame.clone(), repeat)?;
        let run = varied.filter.run(&mut self.frame, repeat)?;
        Ok(f64::from(run.nanoseconds) - f64::from(aside.nanoseconds) + base)
    }

    /// Fills the maps as the rounds will find them, and sees that the packets get what they should.
    pub(crate) fn check(&mut self) -> Result<()> {
        let warm_up = if self.varied.is_some() {
            WARM_UP
        } else {
            CHECKED
        };
        self.run(warm_up, 0.0)?;
        let before = filter::count(&self.loaded, self.expected)?;
        self.run(CHECKED, 0.0)?;
        let counted = filter::count(&self.loaded, self.expected)? - before;
        ensure!(
            counted >= u64::from(CHECKED) / 100 * 99,
            "{}: {counted} of {CHECKED} packets were counted as {}",
            self.name,
            self.expected.name(),
        );
        Ok(())
    }
}

/// Every case, in the order of the report.
pub(crate) fn all() -> Result<Vec<Case>> {
    let loaded = Rc::new(filter::load(POLICIES, FEW)?);
    let syn = |port| Frame::ipv4(tcp(port, SYN)).bytes();
    let direct = |name, frame, reason| Case {
        name,
        loaded: Rc::clone(&loaded),
        frame,
        varied: None,
        expected: Counter::Reason(reason),
    };
    let [hot_v4, hot_v6] = HOT;
    let mut cases = vec![
        direct("no policy", syn(UNNAMED), Reason::NoPolicy),
        direct(
            "segment that opens nothing",
            Frame::ipv4(tcp(OPEN, ACK)).bytes(),
            Reason::OpensNothing,
        ),
        direct(hot_v4, syn(OPEN), Reason::Paid),
        direct(hot_v6, Frame::ipv6(tcp(OPEN, SYN)).bytes(), Reason::Paid),
        direct("hot source refused", syn(SPENT), Reason::Rate),
        direct(
            "hot source admitted, unit byte",
            Frame::ipv4(udp(OPEN)).bytes(),
            Reason::Paid,
        ),
    ];
    for (name, entries) in [
        ("hot source admitted, 1,000 addresses on each list", 1_000),
        ("hot source admitted, 65,536 addresses on each list", 65_536),
    ] {
        cases.push(Case {
            name,
            loaded: Rc::new(listed(entries)?),
            frame: syn(OPEN),
            varied: None,
            expected: Counter::Reason(Reason::Paid),
        });
    }
    for (name, max_sources, sources, port, expected) in [
        (
            "100,000 sources at random",
            DEFAULT_MAX_SOURCES,
            Sources::Among(100_000),
            OPEN,
            Counter::Reason(Reason::Paid),
        ),
        (
            "flood of new sources, places free again",
            DEFAULT_MAX_SOURCES,
            Sources::New,
            BRIEF,
            Counter::Effect(Effect::Reclaimed),
        ),
        (
            "flood of new sources, every place taken",
            FEW,
            Sources::New,
            LASTING,
            Counter::Effect(Effect::Overflow),
        ),
    ] {
        cases.push(varied(name, max_sources, sources, syn(port), expected)?);
    }
    Ok(cases)
}

fn varied(
    name: &'static str,
    max_sources: u32,
    sources: Sources,
    frame: Vec<u8>,
    expected: Counter,
) -> Result<Case> {
    let loaded = filter::load(POLICIES, max_sources)?;
    let tail_calls = [loaded.tail_call()?, answer(PASS)?.tail_call()?];
    let varied = Varied {
        filter: vary(sources, &tail_calls[0])?,
        empty: vary(sources, &tail_calls[1])?,
        _tail_calls: tail_calls,
    };
    Ok(Case {
        name,
        loaded: Rc::new(loaded),
        frame,
        varied: Some(varied),
        expected,
    })
}

/// The filter with so many IPv4 addresses on each list, spread evenly, none of them the frame's.
fn listed(entries: u32) -> Result<Loaded> {
    let mut loaded = filter::load(POLICIES, FEW)?;
    let own = u32::from_be_bytes(SOURCE_V4);
    for (list, parity) in [(List::Allow, 0), (List::Deny, 1)] {
        // An odd factor keeps distinct numbers distinct.
        let prefixes: Vec<IpNet> = (0..)
            .map(|number: u32| (number * 2 + parity).wrapping_mul(SPREAD))
            .filter(|address| *address != own)
            .take(entries as usize)
            .map(|address| IpNet::from(IpAddr::V4(address.into())))
            .collect();
        loaded.tables.list_add(list, &prefixes)?;
    }
    Ok(loaded)
}

/// The cases that the mark is about.
pub(crate) const HOT: [&str; 2] = ["hot source admitted, IPv4", "hot source admitted, IPv6"];

const POLICIES: &str = "policy = [
    { name = 'open', ports = '80', capacity = 4294967295, refill = 100, on_limit = 'drop' },
    { name = 'spent', ports = '81', capacity = 100, refill = 100, on_limit = 'drop' },
    { name = 'brief', ports = '82', capacity = 1, refill = 1, interval = '1ms', on_limit = 'drop' },
    { name = 'lasting', ports = '83', capacity = 2, refill = 1, interval = '1h', on_limit = 'drop' },
    { name = 'bytes', protocol = 'udp', ports = '80', unit = 'byte', capacity = 4294967295, \
      refill = 100000000, on_limit = 'drop' },
]";
const UNNAMED: u16 = 79;
const OPEN: u16 = 80;
const SPENT: u16 = 81;
const BRIEF: u16 = 82;
const LASTING: u16 = 83;

/// Sources that the cases need which fill no map, or fill one on purpose.
const FEW: u32 = 4096;

/// Packets of varied sources before the first that is checked: more than any map has places.
const WARM_UP: u32 = 2 * DEFAULT_MAX_SOURCES;

const CHECKED: u32 = 10_000;

/// 2^32 divided by the golden ratio, to an odd number.
const SPREAD: u32 = 0x9e37_79b1;
