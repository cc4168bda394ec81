//! System calls for programs of raw instructions: timed runs, live frames, tail calls.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use super::{
    BPF_PROG_TEST_RUN, address, bpf, owned,
    record::{ElementAttr, MapCreateAttr, TestRunAttr},
};

/// What repeated runs over one frame gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Repeated {
    /// The result of the last run.
    pub(in super::super) result: u32,
    /// Nanoseconds of one run, averaged, rounded down.
    pub(in super::super) nanoseconds: u32,
}

/// Runs a program `repeat` times over one frame, which keeps what each run made of it.
pub(in super::super) fn program_repeat(
    program: BorrowedFd<'_>,
    frame: &mut [u8],
    repeat: u32,
) -> io::Result<Repeated> {
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let input = frame.to_vec();
    let mut attr = TestRunAttr {
        program: program.as_raw_fd(),
        input_length: length,
        output_length: length,
        input: address(input.as_ptr()),
        output: address(frame.as_mut_ptr()),
        repeat,
        ..TestRunAttr::default()
    };
    // SAFETY: `input` is readable and `output` writable for `length` bytes, and both live until the
    // end of this function; there is no context.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(Repeated {
        result: attr.result,
        nanoseconds: attr.duration,
    })
}

/// Runs a program over `count` copies of `frame`, and does with each what the program says.
pub(in super::super) fn program_run_live(
    program: BorrowedFd<'_>,
    frame: &[u8],
    count: u32,
) -> io::Result<()> {
    let mut attr = TestRunAttr {
        program: program.as_raw_fd(),
        input_length: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        input: address(frame.as_ptr()),
        repeat: count,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        ..TestRunAttr::default()
    };
    // SAFETY: `input` is readable for its length and lives until the end of this function; there is
    // neither output nor context.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }.map(drop)
}

/// A program array of one entry, which is `program`.
pub(in super::super) fn tail_call(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attr = MapCreateAttr {
        kind: BPF_MAP_TYPE_PROG_ARRAY,
        key_bytes: 4,
        value_bytes: 4,
        entries: 1,
        flags: 0,
    };
    // SAFETY: the attributes hold no pointer.
    let map = owned(unsafe { bpf(BPF_MAP_CREATE, &mut attr) }?)?;
    let (key, value) = (0_u32, program.as_raw_fd());
    let mut attr = ElementAttr {
        map: map.as_fd().as_raw_fd(),
        key: address(&raw const key),
        value: address(&raw const value),
        ..ElementAttr::default()
    };
    // SAFETY: `key` and `value` are readable for the 4 bytes each that the map was made with, and
    // outlive the call.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }?;
    Ok(map)
}

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
