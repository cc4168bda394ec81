//! The BPF object: its bytes, and loading it with or without pins.
//!
//! The object is built into the binary; `LIMIT_BPF_OBJECT` names a file that is used in its place.
//! [`load`] serves attaching, and tests and benches directly: a [`Loaded`] without pins leaves
//! nothing behind.

use std::{
    borrow::Cow,
    env, fmt,
    fs::OpenOptions,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use aya::{
    Ebpf, EbpfLoader, TestRunOptions,
    maps::{Array, Map, MapData, MapError, ProgramArray},
    programs::{TestRun, Xdp},
};
use limit_common::{
    counters::ROWS,
    layout::{CounterRow, globals, maps, programs, tails},
    units::Instant,
};

use super::{
    counters::Counters,
    error::{self, KernelError},
    sys,
    tables::{Tables, expect_entries, take},
};
use crate::bounded;

/// Which programs are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The filter that takes frames in several buffers, and what it tail-calls.
    Frags,
    /// The filter for kernels without such frames, and what it tail-calls.
    Plain,
    /// The clock alone.
    ClockOnly,
}

/// Where a map is pinned, or `None` for one that is not.
pub type PinOf<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// How the object is loaded.
#[expect(missing_debug_implementations, reason = "holds a closure")]
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Sources that the bucket map holds.
    pub max_sources: u32,
    /// Whether the clock is what [`Loaded::clock`] says; for tests.
    pub injected_clock: bool,
    /// Which programs are loaded.
    pub variant: Variant,
    /// Pins: an existing one is reused, a missing one is made. `None` pins nothing.
    pub pins: Option<PinOf<'a>>,
}

/// A loaded object: programs that the kernel verified, and the maps they use.
///
/// Its parts are fields, so that the programs may run on other threads while the tables change.
pub struct Loaded {
    /// The programs.
    pub programs: Programs,
    /// The maps of the filter.
    pub tables: Tables,
    /// The counters of the interface that the program is for.
    pub counters: Counters,
    /// The clock that the programs read if it is injected.
    pub clock: InjectedClock,
    /// A program array.
    tails: Map,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("programs", &self.programs)
            .finish_non_exhaustive()
    }
}

/// The programs of a loaded object.
pub struct Programs {
    ebpf: Ebpf,
    variant: Variant,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs")
            .field("variant", &self.variant)
            .finish_non_exhaustive()
    }
}

/// The time that a test injects.
pub struct InjectedClock(Array<MapData, u64>);

impl fmt::Debug for InjectedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InjectedClock").finish_non_exhaustive()
    }
}

impl InjectedClock {
    /// Sets the time that the programs see, if the clock is injected.
    pub fn set(&mut self, now: Instant) -> Result<(), KernelError> {
        self.0
            .set(0, now.as_ns(), 0)
            .map_err(|error| KernelError::map("set the injected clock", error))
    }
}

/// What a test run gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The XDP action as a number.
    pub action: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// Time of one run, averaged over the repeats.
    pub duration: Duration,
}

/// Loads the object.
///
/// # Errors
///
/// [`KernelError::Program`] with the end of the verifier's log, [`KernelError::Capability`] with the
/// one that is missing, [`KernelError::MapShape`] if a reused pin is not as asked.
pub fn load(options: &LoadOptions<'_>) -> Result<Loaded, KernelError> {
    let (origin, bytes) = bytes()?;
    load_bytes(&origin, &bytes, options)
}

/// Loads the object that is built into the binary, whatever [`OBJECT_VARIABLE`] says.
///
/// # Errors
///
/// As [`load`].
pub fn load_committed(options: &LoadOptions<'_>) -> Result<Loaded, KernelError> {
    load_bytes(BUILT_IN, EMBEDDED, options)
}

fn load_bytes(
    origin: &str,
    bytes: &[u8],
    options: &LoadOptions<'_>,
) -> Result<Loaded, KernelError> {
    let mut loader = EbpfLoader::new();
    let injected = u8::from(options.injected_clock);
    loader
        .btf(None)
        .map_max_entries(maps::BUCKETS, options.max_sources)
        .map_max_entries(maps::PLACES, options.max_sources)
        .override_global(globals::MAX_SOURCES, &options.max_sources, true)
        .override_global(globals::INJECTED_CLOCK, &injected, true);
    for name in maps::SHARED.into_iter().chain(maps::PER_INTERFACE) {
        if let Some(path) = options.pins.and_then(|pin_of| pin_of(name)) {
            loader.map_pin_path(name, path);
        }
    }
    let mut ebpf = loader
        .load(bytes)
        .map_err(|error| error::from_object(origin, error))?;
    for name in options.variant.programs() {
        let program = xdp_mut(&mut ebpf, origin, name)?;
        program
            .load()
            .map_err(|error| error::from_load(name, error))?;
    }
    let tables = Tables::from_object(&mut ebpf)?;
    expect_entries(maps::BUCKETS, tables.buckets_map(), options.max_sources)?;
    let counters = Counters::from_object(&mut ebpf)?;
    let tails = take(&mut ebpf, maps::TAILS)?;
    let clock = Array::try_from(take(&mut ebpf, maps::INJECTED_CLOCKS)?)
        .map_err(|error| KernelError::map("use map INJECTED_CLOCKS", error))?;
    let mut loaded = Loaded {
        programs: Programs {
            ebpf,
            variant: options.variant,
        },
        tables,
        counters,
        clock: InjectedClock(clock),
        tails,
    };
    loaded.fill_tails()?;
    Ok(loaded)
}

impl Loaded {
    /// Runs the filter over `frame`, `repeat` times.
    ///
    /// # Errors
    ///
    /// The kernel takes no frame shorter than an Ethernet header.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<Run, KernelError> {
        self.programs.run(frame, repeat)
    }

    /// Reads the clock of this object: the injected time, or the kernel's.
    pub fn now(&self) -> Result<Instant, KernelError> {
        let run = self
            .programs
            .run_program(programs::CLOCK, &CLOCK_FRAME, 1)?;
        Ok(decode_clock(&run.frame))
    }

    /// Every counter row, summed over CPUs.
    pub fn counters(&self) -> Result<Box<[CounterRow; ROWS]>, KernelError> {
        self.counters.read()
    }

    /// The descriptor of the filter, to attach it.
    pub(super) fn filter_fd(&self) -> Result<BorrowedFd<'_>, KernelError> {
        let name = self.programs.variant.main();
        let program = self.programs.xdp(name)?;
        let fd = program
            .fd()
            .map_err(|error| KernelError::program(format!("use {name}"), error))?;
        Ok(fd.as_fd())
    }

    /// Pins the clock program.
    pub(super) fn pin_clock(&self, path: &Path) -> Result<(), KernelError> {
        let program = self.programs.xdp(programs::CLOCK)?;
        let fd = program
            .fd()
            .map_err(|error| KernelError::program("use clock", error))?;
        sys::object_pin(fd.as_fd(), path)
            .map_err(|error| KernelError::call(format!("pin {}", path.display()), error))
    }

    /// Pins the tail calls, which the kernel empties when the last pin and descriptor go.
    pub(super) fn pin_tails(&self, path: &Path) -> Result<(), KernelError> {
        self.tails.pin(path).map_err(|error| {
            KernelError::map(
                format!("pin {}", path.display()),
                MapError::PinError { name: None, error },
            )
        })
    }

    fn fill_tails(&mut self) -> Result<(), KernelError> {
        let Some(name) = self.programs.variant.reset() else {
            return Ok(());
        };
        let reset = self.programs.xdp(name)?;
        let fd = reset
            .fd()
            .map_err(|error| KernelError::program(format!("use {name}"), error))?;
        ProgramArray::try_from(&mut self.tails)
            .and_then(|mut programs| programs.set(tails::RESET, fd, 0))
            .map_err(|error| KernelError::map(format!("set tail call {name}"), error))
    }
}

impl Programs {
    /// Runs the filter over `frame`, `repeat` times, on the CPU of the calling thread.
    ///
    /// # Errors
    ///
    /// As [`Loaded::run`].
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<Run, KernelError> {
        self.run_program(self.variant.main(), frame, repeat)
    }

    fn run_program(&self, name: &str, frame: &[u8], repeat: u32) -> Result<Run, KernelError> {
        let mut out = vec![0; frame.len().saturating_add(HEADROOM)];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::default()
        };
        let result = self
            .xdp(name)?
            .test_run(options)
            .map_err(|error| KernelError::program(format!("test-run {name}"), error))?;
        out.truncate(result.data_size_out as usize);
        Ok(Run {
            action: result.return_value,
            frame: out,
            duration: result.duration,
        })
    }

    fn xdp(&self, name: &str) -> Result<&Xdp, KernelError> {
        xdp(&self.ebpf, name)
    }
}

impl Variant {
    /// The program that is attached and test-run.
    const fn main(self) -> &'static str {
        match self {
            Self::Frags => programs::LIMIT_FRAGS,
            Self::Plain => programs::LIMIT,
            Self::ClockOnly => programs::CLOCK,
        }
    }

    /// The reset that `main` tail-calls.
    const fn reset(self) -> Option<&'static str> {
        match self {
            Self::Frags => Some(programs::RESET_FRAGS),
            Self::Plain => Some(programs::RESET),
            Self::ClockOnly => None,
        }
    }

    fn programs(self) -> impl Iterator<Item = &'static str> {
        let filter = (self != Self::ClockOnly).then(|| self.main());
        filter
            .into_iter()
            .chain(self.reset())
            .chain([programs::CLOCK])
    }
}

/// Opens the pinned clock program.
pub(super) fn clock_from_pin(path: &Path) -> Result<OwnedFd, KernelError> {
    sys::object_open(path)
        .map_err(|error| KernelError::call(format!("open {}", path.display()), error))
}

/// The time that the pinned clock program tells.
pub(super) fn read_clock(clock: &OwnedFd) -> Result<Instant, KernelError> {
    let mut frame = CLOCK_FRAME;
    sys::program_test_run(clock.as_fd(), &mut frame)
        .map_err(|error| KernelError::call("test-run the clock program", error))?;
    Ok(decode_clock(&frame))
}

/// The object's origin, for messages, and its bytes.
fn bytes() -> Result<(String, Cow<'static, [u8]>), KernelError> {
    let Some(path) = env::var_os(OBJECT_VARIABLE) else {
        return Ok((BUILT_IN.to_owned(), Cow::Borrowed(EMBEDDED)));
    };
    let path = PathBuf::from(path);
    let bytes = read_object(&path).map_err(|error| {
        KernelError::call(
            format!("read {} ({OBJECT_VARIABLE})", path.display()),
            error,
        )
    })?;
    Ok((path.display().to_string(), Cow::Owned(bytes)))
}

/// Reads a regular file; anything else could make a change wait or eat memory.
fn read_object(path: &Path) -> io::Result<Vec<u8>> {
    // Without waiting for a writer, should it be a pipe.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    bounded::read(file, OBJECT_MOST)
}

fn xdp<'a>(ebpf: &'a Ebpf, name: &str) -> Result<&'a Xdp, KernelError> {
    let program = ebpf.program(name).ok_or_else(|| missing("in use", name))?;
    program
        .try_into()
        .map_err(|error| KernelError::program(format!("use {name}"), error))
}

fn xdp_mut<'a>(ebpf: &'a mut Ebpf, origin: &str, name: &str) -> Result<&'a mut Xdp, KernelError> {
    let program = ebpf
        .program_mut(name)
        .ok_or_else(|| missing(origin, name))?;
    program
        .try_into()
        .map_err(|error| KernelError::program(format!("use {name}"), error))
}

fn missing(origin: &str, program: &str) -> KernelError {
    KernelError::Object {
        origin: origin.to_owned(),
        problem: format!("has no program {program}"),
    }
}

fn decode_clock(frame: &[u8]) -> Instant {
    Instant::from_ns(
        frame
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes)),
    )
}

/// The file that replaces the embedded object.
pub const OBJECT_VARIABLE: &str = "LIMIT_BPF_OBJECT";

/// Origin of the embedded object, for messages.
const BUILT_IN: &str = "built into limitctl";

/// The committed object.
static EMBEDDED: &[u8] = aya::include_bytes_aligned!("../../bpf/limit.bpf.o");

/// What the clock program runs over: the shortest frame that every kernel takes.
const CLOCK_FRAME: [u8; 64] = [0; 64];

/// Room for a program that makes the frame longer.
const HEADROOM: usize = 256;

/// Bytes of an object that replaces the embedded one.
const OBJECT_MOST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path};

    use super::*;

    #[test]
    fn reads_an_object_from_a_regular_file_of_a_sane_size_only() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [Path::new("/dev/zero"), &fifo, folder.path()] {
            let error = read_object(path).unwrap_err().to_string();
            assert_eq!(error, "it is not a regular file", "{}", path.display());
        }
        let huge = folder.path().join("huge");
        File::create(&huge)
            .unwrap()
            .set_len(OBJECT_MOST + 1)
            .unwrap();
        let error = read_object(&huge).unwrap_err().to_string();
        assert_eq!(error, "it has more than 16 MiB");
    }
}
