//! What the kernel and this process can do, found by trying.

use std::{
    fmt, fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use aya::{maps::MapType, sys::is_map_supported};
use limit_common::layout::MIN_MAX_SOURCES;

use super::{
    error::KernelError,
    links::Interface,
    netlink,
    object::{self, LoadOptions, Variant},
    sys,
};

/// A capability that the filter has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Loading programs and maps.
    Bpf,
    /// Attaching to network devices.
    NetAdmin,
    /// Reading a packet at offsets that the packet itself tells, as every header walk does: the
    /// verifier takes no such read from a thread without it.
    Perfmon,
    /// Stands for `Bpf`, `NetAdmin` where BPF is concerned, and `Perfmon`.
    SysAdmin,
    /// Raising the limit of locked memory; needed on no kernel from 5.11 on.
    SysResource,
}

impl Capability {
    /// What loading and attaching needs, unless `SysAdmin` stands for it.
    pub const NEEDED: [Self; 3] = [Self::Bpf, Self::NetAdmin, Self::Perfmon];

    const fn bit(self) -> u64 {
        1 << match self {
            Self::NetAdmin => 12,
            Self::SysAdmin => 21,
            Self::SysResource => 24,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bpf => "CAP_BPF",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysResource => "CAP_SYS_RESOURCE",
        })
    }
}

/// The effective capabilities of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Those of the calling thread.
    pub fn of_this_thread() -> Result<Self, KernelError> {
        let status = read(STATUS)?;
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.map(Self).ok_or_else(|| {
            KernelError::call(
                format!("read CapEff in {STATUS}"),
                io::ErrorKind::InvalidData.into(),
            )
        })
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// The first capability that the filter needs and that is not there.
    #[must_use]
    pub fn first_missing(self) -> Option<Capability> {
        if self.has(Capability::SysAdmin) {
            return (!self.has(Capability::NetAdmin)).then_some(Capability::NetAdmin);
        }
        Capability::NEEDED
            .into_iter()
            .find(|needed| !self.has(*needed))
    }
}

/// One thing that the kernel can do or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// Whether the filter cannot do without it.
    pub is_needed: bool,
    /// Why it is not there.
    pub outcome: Result<(), String>,
    /// What to do if it is not there.
    pub advice: &'static str,
}

/// Whether the driver of an interface runs XDP itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeSupport {
    /// It does; with frames in several buffers or not.
    Yes {
        /// Whether it takes frames in several buffers.
        frags: bool,
    },
    /// It does not, or not with its settings.
    No,
    /// The kernel does not tell without trying (before Linux 6.3).
    Unknown,
}

/// Errs on the first capability that attaching needs and this thread lacks.
pub fn require_capabilities() -> Result<(), KernelError> {
    require_capabilities_to("load and attach the filter")
}

/// The same, where the filter is there already; `action` says what it is needed for.
pub fn require_capabilities_to(action: &str) -> Result<(), KernelError> {
    match Capabilities::of_this_thread()?.first_missing() {
        None => Ok(()),
        Some(capability) => Err(KernelError::Capability {
            capability,
            action: action.to_owned(),
        }),
    }
}

/// The kernel's release, as `uname -r` prints it.
pub fn kernel_release() -> Result<String, KernelError> {
    read("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned())
}

/// Every kernel feature that the filter uses, tried one by one; the last is the object itself.
#[must_use]
pub fn features() -> Vec<Feature> {
    let map = |name, kind, advice| Feature {
        name,
        is_needed: true,
        outcome: match is_map_supported(kind) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the kernel does not know this map type".to_owned()),
            Err(error) => Err(error.io_error.to_string()),
        },
        advice,
    };
    let program = |name, is_needed, instructions: &[u64], flags, advice| Feature {
        name,
        is_needed,
        outcome: sys::program_load(instructions, flags)
            .map(drop)
            .map_err(|error| error.to_string()),
        advice,
    };
    vec![
        program("xdp programs", true, &PASS, 0, NEWER_KERNEL),
        program(
            "compare-and-swap in programs",
            true,
            &COMPARE_AND_SWAP,
            0,
            NEWER_KERNEL,
        ),
        program(
            "frames in several buffers",
            false,
            &PASS,
            sys::XDP_HAS_FRAGS,
            FRAGS_ADVICE,
        ),
        map("arrays of maps", MapType::ArrayOfMaps, NEWER_KERNEL),
        map("longest-prefix tries", MapType::LpmTrie, NEWER_KERNEL),
        map("per-CPU arrays", MapType::PerCpuArray, NEWER_KERNEL),
        map("program arrays", MapType::ProgramArray, NEWER_KERNEL),
        Feature {
            name: "test runs of programs",
            is_needed: true,
            outcome: test_run().map_err(|error| error.to_string()),
            advice: NEWER_KERNEL,
        },
        Feature {
            name: "the filter's own programs",
            is_needed: true,
            outcome: load_object().map_err(|error| error.to_string()),
            advice: "report this with the text above: the verifier of this kernel refuses them",
        },
    ]
}

/// Whether the kernel takes programs for frames in several buffers; asked once.
#[must_use]
pub fn has_frags() -> bool {
    static HAS_FRAGS: OnceLock<bool> = OnceLock::new();
    *HAS_FRAGS.get_or_init(|| sys::program_load(&PASS, sys::XDP_HAS_FRAGS).is_ok())
}

/// Where cgroup2 is mounted, if it is.
pub fn cgroup2_mount() -> Result<Option<PathBuf>, KernelError> {
    let mounts = read("/proc/self/mounts")?;
    Ok(mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next()? == "cgroup2").then(|| Path::new(place).to_path_buf())
    }))
}

/// The setting of the BPF compiler: 0 off, 1 on, 2 on and verbose; `None` if the kernel has none.
#[must_use]
pub fn jit() -> Option<u32> {
    // Only root may read it, and a namespace other than the first may not show it.
    fs::read_to_string("/proc/sys/net/core/bpf_jit_enable")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Whether the driver of `interface` runs XDP itself, without attaching anything.
pub fn native_support(interface: &Interface) -> Result<NativeSupport, KernelError> {
    Ok(match netlink::xdp_features(interface.index)? {
        None => NativeSupport::Unknown,
        Some(features) if features & XDP_ACT_BASIC != 0 => NativeSupport::Yes {
            frags: features & XDP_ACT_RX_SG != 0,
        },
        Some(_) => NativeSupport::No,
    })
}

fn test_run() -> io::Result<()> {
    let program = sys::program_load(&PASS, 0)?;
    match sys::program_test_run(program.as_fd(), &mut [0; 64])? {
        XDP_PASS => Ok(()),
        other => Err(io::Error::other(format!("the test run answered {other}"))),
    }
}

fn load_object() -> Result<(), KernelError> {
    let variant = if has_frags() {
        Variant::Frags
    } else {
        Variant::Plain
    };
    object::load(&LoadOptions {
        max_sources: MIN_MAX_SOURCES,
        injected_clock: false,
        variant,
        pins: None,
    })?
    .now()
    .map(drop)
}

fn read(path: &str) -> Result<String, KernelError> {
    fs::read_to_string(path).map_err(|error| KernelError::call(format!("read {path}"), error))
}

/// The calling thread's own; `/proc/self` would be the main thread's.
const STATUS: &str = "/proc/thread-self/status";

const NEWER_KERNEL: &str = "run Linux 5.12 or newer";
const FRAGS_ADVICE: &str = "run Linux 5.18 or newer for frames above one page";

const XDP_PASS: u32 = 2;

/// `NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_RX_SG`.
const XDP_ACT_BASIC: u64 = 1;
const XDP_ACT_RX_SG: u64 = 1 << 5;

/// `r0 = XDP_PASS; exit`.
pub(super) const PASS: [u64; 2] = [instruction(0xb7, 0, 0, 0, 2), EXIT];

/// A compare-and-swap of a word on the stack, then `r0 = XDP_PASS; exit`.
const COMPARE_AND_SWAP: [u64; 6] = [
    // *(u64 *)(r10 - 8) = 0
    instruction(0x7a, 10, 0, -8, 0),
    // r0 = 0; r1 = 1
    instruction(0xb7, 0, 0, 0, 0),
    instruction(0xb7, 1, 0, 0, 1),
    // r0 = cmpxchg(r10 - 8, r0, r1)
    instruction(0xdb, 10, 1, -8, 0xf1),
    instruction(0xb7, 0, 0, 0, 2),
    EXIT,
];

const EXIT: u64 = instruction(0x95, 0, 0, 0, 0);

/// One BPF instruction as the kernel reads it from memory.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let registers = if cfg!(target_endian = "little") {
        from << 4 | to
    } else {
        to << 4 | from
    };
    let [o0, o1] = offset.to_ne_bytes();
    let [i0, i1, i2, i3] = immediate.to_ne_bytes();
    u64::from_ne_bytes([code, registers, o0, o1, i0, i1, i2, i3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_capability_that_is_missing() {
        let missing = |have: &[Capability]| {
            Capabilities(have.iter().map(|one| one.bit()).sum()).first_missing()
        };
        let [bpf, net_admin, perfmon] = Capability::NEEDED;
        assert_eq!(missing(&[]), Some(bpf));
        assert_eq!(missing(&[bpf, perfmon]), Some(net_admin));
        assert_eq!(missing(&[bpf, net_admin]), Some(perfmon));
        assert_eq!(missing(&[bpf, net_admin, perfmon]), None);
        assert_eq!(missing(&[Capability::SysAdmin]), Some(net_admin));
        assert_eq!(missing(&[Capability::SysAdmin, net_admin]), None);
        assert!(Capabilities::of_this_thread().is_ok());
    }

    #[test]
    fn encodes_an_instruction_as_the_kernel_reads_it() {
        let bytes = instruction(0xdb, 10, 1, -8, 0xf1).to_ne_bytes();
        if cfg!(target_endian = "little") {
            assert_eq!(bytes, [0xdb, 0x1a, 0xf8, 0xff, 0xf1, 0, 0, 0]);
        }
    }

    #[test]
    fn reads_the_release() {
        assert!(
            kernel_release()
                .unwrap()
                .starts_with(|first: char| first.is_ascii_digit())
        );
    }
}
