//! The sources: each opens connections one after the other, at its own pace.
//!
//! A connection is one SYN: a connect that is not answered is given up before the stack would send
//! another. The filter's clock is read just before and just after, so its judgement lies in between;
//! since a source has one connection under way at a time, its instants come in order.
//!
//! Sockets are reset when they are closed, so none of them lingers and no port runs out.

use core::time::Duration;
use std::{
    io::{self, Read as _},
    net::{IpAddr, SocketAddr, TcpStream},
    os::fd::AsRawFd,
    panic,
    sync::Barrier,
    thread,
    time::Instant,
};

use limit_common::units;
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
        sockopt,
    },
};

use super::{
    DemoError,
    server::ANSWER,
    stage::{Stage, server_of},
};
use crate::kernel::KernelError;

/// What a source is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) source: IpAddr,
    pub(super) pace: Pace,
}

/// How often a source opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// So many, as fast as they go.
    AtOnce(u32),
    /// Never sooner than `gap` after the one before was answered: however late the machine is, no two
    /// are judged within less.
    Apart { gap: Duration, lasts: Duration },
    /// One each `gap`, and at once what is late.
    Every { gap: Duration, lasts: Duration },
}

/// One connection, and between which readings of the filter's clock it was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) before: units::Instant,
    pub(super) after: units::Instant,
    pub(super) answer: Answer,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The application's byte.
    Served,
    /// A connection, and no byte.
    Unserved,
    /// A reset.
    Refused,
    /// Nothing in time.
    Silence,
}

/// What a source did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) attempts: Vec<Attempt>,
    pub(super) took: Duration,
}

/// The filter's clock.
pub(super) type Clock<'a> = &'a (dyn Fn() -> Result<units::Instant, KernelError> + Sync);

/// Has all sources begin at the same time and waits for the last to end.
pub(super) fn send_all(
    stage: &Stage,
    port: u16,
    plans: &[Plan],
    clock: Clock<'_>,
) -> Result<Vec<Sent>, DemoError> {
    let gate = Barrier::new(plans.len());
    let send_one = |plan: &Plan| {
        let moved = stage.go_to_client();
        // Whoever failed comes to the gate too, or the others would wait there for ever.
        gate.wait();
        moved?;
        send(*plan, port, clock)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = plans
            .iter()
            .map(|plan| scope.spawn(|| send_one(plan)))
            .collect();
        let ended = threads.into_iter().map(|one| match one.join() {
            Ok(sent) => sent,
            Err(panic) => panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

/// Opens one connection and says what came back, at no particular time.
pub(super) fn knock(source: IpAddr, target: SocketAddr) -> Result<Answer, DemoError> {
    let never = || Ok(units::Instant::default());
    attempt(source, target, &never).map(|attempt| attempt.answer)
}

fn send(plan: Plan, port: u16, clock: Clock<'_>) -> Result<Sent, DemoError> {
    let target = server_of(plan.source, port);
    let start = Instant::now();
    let mut attempts = Vec::new();
    let mut once = || attempt(plan.source, target, clock).map(|one| attempts.push(one));
    match plan.pace {
        Pace::AtOnce(sends) => {
            for _ in 0..sends {
                once()?;
            }
        }
        Pace::Apart { gap, lasts } => {
            while start.elapsed() < lasts {
                once()?;
                thread::sleep(gap);
            }
        }
        Pace::Every { gap, lasts } => {
            let due = (0..).map(|n| gap * n).take_while(|due| *due < lasts);
            for due in due {
                thread::sleep(due.saturating_sub(start.elapsed()));
                once()?;
            }
            thread::sleep(lasts.saturating_sub(start.elapsed()));
        }
    }
    Ok(Sent {
        attempts,
        took: start.elapsed(),
    })
}

fn attempt(source: IpAddr, target: SocketAddr, clock: Clock<'_>) -> Result<Attempt, DemoError> {
    let failed = |errno: Errno| DemoError::Call {
        action: format!("connect from {source} to {target}"),
        source: errno.into(),
    };
    let mut stream = open(source).map_err(|error| DemoError::Call {
        action: format!("open a socket at {source}"),
        source: error,
    })?;
    let address = SockaddrStorage::from(target);
    let before = clock()?;
    let connected = connect(stream.as_raw_fd(), &address);
    let after = clock()?;
    let answer = match connected {
        Ok(()) => read_answer(&mut stream),
        Err(Errno::ECONNREFUSED) => Answer::Refused,
        // What a connect returns when the time to send in is over, or a stopped process goes on.
        Err(Errno::EINPROGRESS | Errno::EINTR) => Answer::Silence,
        Err(errno) => return Err(failed(errno)),
    };
    Ok(Attempt {
        before,
        after,
        answer,
    })
}

/// A socket at `source` that waits for nothing for ever and is reset when it is closed.
fn open(source: IpAddr) -> io::Result<TcpStream> {
    let family = match source {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&socket, sockopt::Linger, &at_once)?;
    let any_port = SocketAddr::new(source, 0);
    bind(socket.as_raw_fd(), &SockaddrStorage::from(any_port))?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(ANSWERED_WITHIN))?;
    stream.set_read_timeout(Some(SERVED_WITHIN))?;
    Ok(stream)
}

fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut byte = [0];
    match stream.read_exact(&mut byte) {
        Ok(()) if byte == [ANSWER] => Answer::Served,
        Ok(()) | Err(_) => Answer::Unserved,
    }
}

/// How long a connect waits: less than the second after which Linux sends another SYN.
const ANSWERED_WITHIN: Duration = Duration::from_millis(900);

/// How long an accepted connection waits for the application, on a machine that is busy.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
