//! XDP programs written by hand: the least there is, ones that vary the source, one that sends.
//!
//! An instruction is an opcode (8 bits), two registers (4 each), an offset (16) and a constant (32);
//! `linux/bpf.h` names them.

use anyhow::Result;
use limit_user::kernel::assembled::{Assembled, TailCall};

/// Does nothing but answer `action`.
pub(crate) fn answer(action: i32) -> Result<Assembled> {
    Ok(Assembled::load(&[set(R0, action), EXIT])?)
}

/// Sends the frame out of the interface with this index.
pub(crate) fn redirect(interface: u32) -> Result<Assembled> {
    Ok(Assembled::load(&[
        set(R1, interface.cast_signed()),
        set(R2, 0),
        call(REDIRECT),
        EXIT,
    ])?)
}

/// Which source the next packet has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sources {
    /// One of so many, at random.
    Among(i32),
    /// One that no packet had before.
    New,
}

/// Gives an IPv4 frame another source, and goes on in `then`.
///
/// The frame itself keeps the state, in its first four bytes: what a run writes there, the next run
/// over the same frame finds.
pub(crate) fn vary(sources: Sources, then: &TailCall) -> Result<Assembled> {
    let next: &[u64] = match sources {
        // x' = 1664525 x + 1013904223 (Numerical Recipes); source = x' * n / 2^32
        Sources::Among(count) => &[
            word(MUL, R4, 1_664_525),
            word(ADD, R4, 1_013_904_223),
            store(R2, R4, STATE),
            long(MUL, R4, count),
            long(SHIFT_RIGHT, R4, 32),
        ],
        Sources::New => &[word(ADD, R4, 1), store(R2, R4, STATE)],
    };
    let mut program = vec![
        load(R2, R1, DATA),
        load(R3, R1, DATA_END),
        copy(R4, R2),
        long(ADD, R4, HEADERS),
        // To the last two instructions, if the frame is shorter than that.
        jump_if_greater(R4, R3, i16::try_from(next.len())? + 6),
        load(R4, R2, STATE),
    ];
    program.extend(next);
    program.extend([store(R2, R4, IPV4_SOURCE)]);
    program.extend(load_map(R2, then.descriptor()));
    program.extend([set(R3, 0), call(TAIL_CALL), set(R0, ABORTED), EXIT]);
    Ok(Assembled::load(&program)?)
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    code as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset.cast_unsigned() as u64) << 16
        | (constant.cast_unsigned() as u64) << 32
}

/// 64-bit arithmetic with a constant.
const fn long(operation: u8, to: u8, constant: i32) -> u64 {
    instruction(operation | 0x07, to, 0, 0, constant)
}

/// 32-bit arithmetic with a constant.
const fn word(operation: u8, to: u8, constant: i32) -> u64 {
    instruction(operation | 0x04, to, 0, 0, constant)
}

const fn set(to: u8, constant: i32) -> u64 {
    long(MOVE, to, constant)
}

const fn copy(to: u8, from: u8) -> u64 {
    instruction(MOVE | 0x0f, to, from, 0, 0)
}

/// Reads 32 bits at `from + offset`.
const fn load(to: u8, from: u8, offset: i16) -> u64 {
    instruction(0x61, to, from, offset, 0)
}

/// Writes 32 bits at `to + offset`.
const fn store(to: u8, from: u8, offset: i16) -> u64 {
    instruction(0x63, to, from, offset, 0)
}

const fn jump_if_greater(left: u8, right: u8, offset: i16) -> u64 {
    instruction(0x2d, left, right, offset, 0)
}

const fn call(helper: i32) -> u64 {
    instruction(0x85, 0, 0, 0, helper)
}

/// A map by its descriptor, in two instructions (`BPF_PSEUDO_MAP_FD`).
const fn load_map(to: u8, descriptor: i32) -> [u64; 2] {
    [instruction(0x18, to, 1, 0, descriptor), 0]
}

const EXIT: u64 = 0x95;

const ADD: u8 = 0x00;
const MUL: u8 = 0x20;
const SHIFT_RIGHT: u8 = 0x70;
const MOVE: u8 = 0xb0;

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;

const TAIL_CALL: i32 = 12;
const REDIRECT: i32 = 23;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;

/// Where a varied frame keeps its state: in the destination address.
const STATE: i16 = 0;
const IPV4_SOURCE: i16 = 26;
/// Ethernet and IPv4 headers.
const HEADERS: i32 = 34;

const ABORTED: i32 = 0;
pub(crate) const DROP: i32 = 1;
pub(crate) const PASS: i32 = 2;
