//! Programs of raw instructions: what the filter is measured beside and with.
//!
//! Nothing here is pinned: what a process loads and attaches goes with it.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use super::{
    error::KernelError,
    links::Interface,
    object::Loaded,
    probe,
    sys::{
        self, XdpFlags,
        assembled::{program_repeat, program_run_live, tail_call},
    },
};

/// An XDP program of raw instructions.
#[derive(Debug)]
pub struct Assembled(OwnedFd);

/// A program array of one entry: where an assembled program may go on.
#[derive(Debug)]
pub struct TailCall(OwnedFd);

/// A program on an interface, until this is dropped.
#[derive(Debug)]
pub struct Attachment {
    _link: OwnedFd,
}

/// What repeated runs over one frame gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The XDP action of the last run as a number.
    pub action: u32,
    /// Nanoseconds of one run, averaged over the repeats and rounded down.
    pub nanoseconds: u32,
}

impl Assembled {
    /// Loads a program; for frames in several buffers, if the kernel knows these.
    pub fn load(instructions: &[u64]) -> Result<Self, KernelError> {
        let flags = if probe::has_frags() {
            sys::XDP_HAS_FRAGS
        } else {
            0
        };
        sys::program_load(instructions, flags)
            .map(Self)
            .map_err(|error| KernelError::call("load an assembled program", error))
    }

    /// Runs the program `repeat` times over one frame, which keeps what each run made of it.
    pub fn run(&self, frame: &mut [u8], repeat: u32) -> Result<Repeated, KernelError> {
        repeated(program_repeat(self.0.as_fd(), frame, repeat))
    }

    /// Runs the program over `count` copies of `frame` and does with each what the program says.
    ///
    /// # Errors
    ///
    /// Kernels before 5.18 cannot do it.
    pub fn run_live(&self, frame: &[u8], count: u32) -> Result<(), KernelError> {
        program_run_live(self.0.as_fd(), frame, count)
            .map_err(|error| KernelError::call("run a program over live frames", error))
    }

    /// Attaches the program in the driver.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, KernelError> {
        attach(self.0.as_fd(), interface)
    }

    /// A tail call to this program.
    pub fn tail_call(&self) -> Result<TailCall, KernelError> {
        TailCall::new(self.0.as_fd())
    }
}

impl Loaded {
    /// Runs the filter `repeat` times over one frame, which keeps what each run made of it.
    pub fn repeat(&self, frame: &mut [u8], repeat: u32) -> Result<Repeated, KernelError> {
        repeated(program_repeat(self.filter_fd()?, frame, repeat))
    }

    /// Attaches the filter in the driver, without pins.
    pub fn attach(&self, interface: &Interface) -> Result<Attachment, KernelError> {
        attach(self.filter_fd()?, interface)
    }

    /// A tail call to the filter.
    pub fn tail_call(&self) -> Result<TailCall, KernelError> {
        TailCall::new(self.filter_fd()?)
    }
}

impl TailCall {
    fn new(program: BorrowedFd<'_>) -> Result<Self, KernelError> {
        tail_call(program)
            .map(Self)
            .map_err(|error| KernelError::call("make a tail call", error))
    }

    /// The number by which instructions name this array while they are loaded.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

fn repeated(result: io::Result<sys::assembled::Repeated>) -> Result<Repeated, KernelError> {
    let run = result.map_err(|error| KernelError::call("test-run a program", error))?;
    Ok(Repeated {
        action: run.result,
        nanoseconds: run.nanoseconds,
    })
}

fn attach(program: BorrowedFd<'_>, interface: &Interface) -> Result<Attachment, KernelError> {
    let link = sys::link_create(program, interface.index, XdpFlags::Native)
        .map_err(|error| KernelError::call(format!("attach to {}", interface.name), error))?;
    Ok(Attachment { _link: link })
}
