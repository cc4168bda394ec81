//! System calls that neither aya nor nix offers; the only `unsafe` of this crate.
//!
//! BPF links are here because aya's attach falls back to netlink on `EINVAL`, which may replace a
//! foreign program, and its links give away neither their interface nor their descriptor.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, net::UnixDatagram},
    },
    path::Path,
    ptr,
};

use aya::{
    Pod,
    maps::{MapData, MapType},
};

pub(super) mod assembled;
mod record;

use record::{
    BatchAttr, DriverInfo, ElementAttr, EthtoolValue, InfoAttr, LinkCreateAttr, LinkDetachAttr,
    LinkInfoRecord, LinkUpdateAttr, ObjectAttr, ProgramAttr,
};

/// How an XDP link attaches: `XDP_FLAGS_*` of `linux/if_link.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum XdpFlags {
    /// `XDP_FLAGS_SKB_MODE`.
    Generic = 1 << 1,
    /// `XDP_FLAGS_DRV_MODE`.
    Native = 1 << 2,
}

/// What the kernel says about an XDP link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkInfo {
    pub(super) id: u32,
    pub(super) program_id: u32,
    /// 0 once the device is gone or the link was detached.
    pub(super) interface: u32,
}

/// Opens a pinned object.
pub(super) fn object_open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjectAttr {
        pathname: address(path.as_ptr()),
        ..ObjectAttr::default()
    };
    // SAFETY: `pathname` is a NUL-terminated string that lives until the end of this function.
    let fd = unsafe { bpf(BPF_OBJ_GET, &mut attr) }?;
    owned(fd)
}

/// Pins an object.
pub(super) fn object_pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjectAttr {
        pathname: address(path.as_ptr()),
        fd: object.as_raw_fd(),
        ..ObjectAttr::default()
    };
    // SAFETY: `pathname` is a NUL-terminated string that lives until the end of this function.
    unsafe { bpf(BPF_OBJ_PIN, &mut attr) }.map(drop)
}

/// Attaches an XDP program to an interface; dropped unpinned, the link detaches it.
pub(super) fn link_create(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: XdpFlags,
) -> io::Result<OwnedFd> {
    let mut attr = LinkCreateAttr {
        program: program.as_raw_fd(),
        interface,
        attach_type: BPF_XDP,
        flags: flags as u32,
    };
    // SAFETY: the attributes hold no pointer.
    let fd = unsafe { bpf(BPF_LINK_CREATE, &mut attr) }?;
    owned(fd)
}

/// Replaces the program of a link in one step.
pub(super) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = LinkUpdateAttr {
        link: link.as_raw_fd(),
        program: program.as_raw_fd(),
        ..LinkUpdateAttr::default()
    };
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf(BPF_LINK_UPDATE, &mut attr) }.map(drop)
}

/// Detaches a link now, whoever else holds it.
pub(super) fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = LinkDetachAttr {
        link: link.as_raw_fd(),
    };
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf(BPF_LINK_DETACH, &mut attr) }.map(drop)
}

/// Asks the kernel about an XDP link.
///
/// # Errors
///
/// `InvalidInput` if the link is of another type.
pub(super) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut info = LinkInfoRecord::default();
    let mut attr = InfoAttr {
        fd: link.as_raw_fd(),
        length: size_of::<LinkInfoRecord>() as u32,
        info: address((&raw mut info).cast_const()),
    };
    // SAFETY: `info` points to `length` writable bytes, alive until the end of this function, and
    // the record takes any bits.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    if info.kind != BPF_LINK_TYPE_XDP {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not an XDP link",
        ));
    }
    Ok(LinkInfo {
        id: info.id,
        program_id: info.program_id,
        interface: info.interface,
    })
}

/// Reads one value of an array straight into a box: a large one would not fit the stack.
///
/// # Errors
///
/// `InvalidInput` if the map is no array of `T`.
pub(super) fn array_lookup<T: Pod>(map: &MapData, index: u32) -> io::Result<Box<T>> {
    let info = map.info().map_err(io::Error::other)?;
    let is_array = matches!(info.map_type(), Ok(MapType::Array | MapType::ArrayOfMaps));
    if !is_array || info.value_size() as usize != size_of::<T>() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut value = Box::<T>::new_uninit();
    let mut attr = ElementAttr {
        map: map.fd().as_fd().as_raw_fd(),
        key: address(&raw const index),
        value: address(value.as_mut_ptr().cast_const()),
        ..ElementAttr::default()
    };
    // SAFETY: `key` is a readable index of 4 bytes, the key of every array; `value` is writable for
    // the map's value size, which is that of `T` (checked above). Both outlive the call.
    unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) }?;
    // SAFETY: the call succeeded, so the kernel wrote all of the value, and a `Pod` takes any bits.
    Ok(unsafe { value.assume_init() })
}

/// What one batch look-up read.
#[derive(Debug)]
pub(super) struct Batch {
    /// Keys, one after another.
    pub(super) keys: Vec<u8>,
    /// Values, one after another.
    pub(super) values: Vec<u8>,
    /// Where the next batch goes on; `None` after the last.
    pub(super) next: Option<BatchPosition>,
}

/// A place in a map between two batches.
pub(super) type BatchPosition = [u8; BATCH_POSITION_BYTES];

/// Reads up to `capacity` elements of a hash or a trie, from `position` on.
///
/// # Errors
///
/// `ENOSPC` if a hash chain is longer than `capacity`; `EINVAL`, `EOPNOTSUPP` or 524 (`ENOTSUPP`) if
/// the kernel has no batches for this map.
pub(super) fn map_lookup_batch(
    map: &MapData,
    position: Option<&BatchPosition>,
    capacity: usize,
) -> io::Result<Batch> {
    let info = map.info().map_err(io::Error::other)?;
    let known = matches!(info.map_type(), Ok(MapType::Hash | MapType::LpmTrie));
    let (key_bytes, value_bytes) = (info.key_size() as usize, info.value_size() as usize);
    if !known || key_bytes > BATCH_POSITION_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut keys = vec![0; capacity.saturating_mul(key_bytes)];
    // The kernel rounds a value up to 8 bytes when it copies one.
    let mut values = vec![0; capacity.saturating_mul(value_bytes.next_multiple_of(8))];
    let mut next: BatchPosition = [0; BATCH_POSITION_BYTES];
    let mut attr = BatchAttr {
        position: position.map_or(0, |position| address(position.as_ptr())),
        next: address(next.as_mut_ptr()),
        keys: address(keys.as_mut_ptr()),
        values: address(values.as_mut_ptr()),
        count: u32::try_from(capacity).unwrap_or(u32::MAX),
        map: map.fd().as_fd().as_raw_fd(),
        ..BatchAttr::default()
    };
    // SAFETY: `keys` and `values` are writable for `count` elements of the sizes that the kernel
    // itself gave for this map, which is of a kind with one value an element. `position` and `next`
    // take at most a key, which fits (checked above). All of it lives until the end of this
    // function, and bytes take any bits.
    let result = unsafe { bpf(BPF_MAP_LOOKUP_BATCH, &mut attr) };
    let end = match result {
        Ok(_) => false,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
        Err(error) => return Err(error),
    };
    let count = (attr.count as usize).min(capacity);
    keys.truncate(count.saturating_mul(key_bytes));
    values.truncate(count.saturating_mul(value_bytes));
    Ok(Batch {
        keys,
        values,
        next: (!end).then_some(next),
    })
}

/// A record as the kernel copied it out of a map.
pub(super) fn record<T: Pod>(bytes: &[u8]) -> Option<T> {
    if bytes.len() != size_of::<T>() {
        return None;
    }
    // SAFETY: `bytes` has the length of a `T` (checked above), the read needs no alignment, and a
    // `Pod` takes any bits that the kernel side writes: integers and arrays of them.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<T>()) })
}

/// Loads a tiny XDP program of raw instructions, to see whether the kernel takes it.
pub(super) fn program_load(instructions: &[u64], flags: u32) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let mut attr = ProgramAttr {
        program_type: BPF_PROG_TYPE_XDP,
        count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: address(instructions.as_ptr()),
        license: address(license.as_ptr()),
        flags,
        attach_type: BPF_XDP,
        ..ProgramAttr::default()
    };
    // SAFETY: `instructions` points to `count` instructions of 8 bytes and `license` to a
    // NUL-terminated string; both live until the end of this function.
    let fd = unsafe { bpf(BPF_PROG_LOAD, &mut attr) }?;
    owned(fd)
}

/// Runs a program once over a frame and gives back its result; the frame is changed in place.
pub(super) fn program_test_run(program: BorrowedFd<'_>, frame: &mut [u8]) -> io::Result<u32> {
    assembled::program_repeat(program, frame, 1).map(|run| run.result)
}

/// Cookie of the calling thread's network namespace; `None` if the kernel has none.
pub(super) fn namespace_cookie() -> io::Result<Option<u64>> {
    let socket = UnixDatagram::unbound()?;
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` is writable for `length` bytes, both outlive the call, and `socket` keeps the
    // descriptor open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        return Ok(Some(cookie));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) {
        Ok(None)
    } else {
        Err(error)
    }
}

/// The driver of an interface, as ethtool names it.
pub(super) fn driver(interface: &str) -> io::Result<String> {
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        ..DriverInfo::default()
    };
    // SAFETY: the record is laid out as `struct ethtool_drvinfo`, which is what this command fills.
    unsafe { ethtool(interface, &mut info) }?;
    let end = info
        .driver
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(info.driver.get(..end).unwrap_or_default()).into_owned())
}

/// Whether the device takes VLAN tags out of received frames before XDP sees them.
pub(super) fn takes_vlan_tags(interface: &str) -> io::Result<bool> {
    let mut value = EthtoolValue {
        command: ETHTOOL_GFLAGS,
        data: 0,
    };
    // SAFETY: the record is laid out as `struct ethtool_value`, which is what this command fills.
    unsafe { ethtool(interface, &mut value) }?;
    Ok(value.data & ETH_FLAG_RXVLAN != 0)
}

/// One ethtool command on an interface of the calling thread's network namespace.
///
/// # Safety
///
/// `record` is laid out as the command in its first word expects.
unsafe fn ethtool<T>(interface: &str, record: &mut T) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: (&raw mut *record).cast(),
        },
    };
    // SAFETY: `request` is an `ifreq` whose name ends in NUL and whose data is `record`, laid out as
    // its command expects (the caller's promise); both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The `bpf` system call.
///
/// # Safety
///
/// `attr` is laid out as `command` expects, every pointer in it is valid as `command` uses it, and
/// what it points to outlives the call.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is readable and writable for its size; the kernel takes a shorter record than
    // its own as padded with zeros. The rest is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Takes the descriptor that a successful `bpf` call returned.
fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just opened `fd` for this call's caller, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pointer as the `bpf` records hold it.
fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// `BPF_F_XDP_HAS_FRAGS`: the program takes frames in several buffers.
pub(super) const XDP_HAS_FRAGS: u32 = 1 << 5;

const BATCH_POSITION_BYTES: usize = 32;

const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_DETACH: libc::c_int = 34;

const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_LINK_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

const SO_NETNS_COOKIE: libc::c_int = 71;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
