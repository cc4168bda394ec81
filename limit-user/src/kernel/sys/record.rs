//! The records that the system calls of `sys` take, laid out as `linux/bpf.h` and
//! `linux/ethtool.h` have them; the kernel takes a shorter one as padded with zeros.

use std::os::fd::RawFd;

/// `BPF_OBJ_PIN`, `BPF_OBJ_GET`.
#[derive(Default)]
#[repr(C)]
pub(super) struct ObjectAttr {
    pub(super) pathname: u64,
    pub(super) fd: RawFd,
    pub(super) file_flags: u32,
}

/// `BPF_LINK_CREATE`.
#[repr(C)]
pub(super) struct LinkCreateAttr {
    pub(super) program: RawFd,
    pub(super) interface: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
}

/// `BPF_LINK_UPDATE`.
#[derive(Default)]
#[repr(C)]
pub(super) struct LinkUpdateAttr {
    pub(super) link: RawFd,
    pub(super) program: RawFd,
    pub(super) flags: u32,
    pub(super) old_program: RawFd,
}

/// `BPF_LINK_DETACH`.
#[repr(C)]
pub(super) struct LinkDetachAttr {
    pub(super) link: RawFd,
}

/// `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
pub(super) struct InfoAttr {
    pub(super) fd: RawFd,
    pub(super) length: u32,
    pub(super) info: u64,
}

/// `struct bpf_link_info`, up to the part of XDP.
#[derive(Default)]
#[repr(C)]
pub(super) struct LinkInfoRecord {
    pub(super) kind: u32,
    pub(super) id: u32,
    pub(super) program_id: u32,
    pub(super) padding: u32,
    pub(super) interface: u32,
    pub(super) rest: u32,
}

/// `BPF_MAP_LOOKUP_ELEM`.
#[derive(Default)]
#[repr(C)]
pub(super) struct ElementAttr {
    pub(super) map: RawFd,
    pub(super) padding: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// `BPF_MAP_LOOKUP_BATCH`.
#[derive(Default)]
#[repr(C)]
pub(super) struct BatchAttr {
    pub(super) position: u64,
    pub(super) next: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map: RawFd,
    pub(super) element_flags: u64,
    pub(super) flags: u64,
}

/// `BPF_PROG_LOAD`, up to the attach type.
#[derive(Default)]
#[repr(C)]
pub(super) struct ProgramAttr {
    pub(super) program_type: u32,
    pub(super) count: u32,
    pub(super) instructions: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log: u64,
    pub(super) kernel_version: u32,
    pub(super) flags: u32,
    pub(super) name: [u8; 16],
    pub(super) interface: u32,
    pub(super) attach_type: u32,
}

/// `BPF_PROG_TEST_RUN`, up to the batch size.
#[derive(Default)]
#[repr(C)]
pub(super) struct TestRunAttr {
    pub(super) program: RawFd,
    pub(super) result: u32,
    pub(super) input_length: u32,
    pub(super) output_length: u32,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) repeat: u32,
    pub(super) duration: u32,
    pub(super) context_input_length: u32,
    pub(super) context_output_length: u32,
    pub(super) context_input: u64,
    pub(super) context_output: u64,
    pub(super) flags: u32,
    pub(super) cpu: u32,
    pub(super) batch: u32,
    pub(super) padding: u32,
}

/// `BPF_MAP_CREATE`, up to the flags.
#[derive(Default)]
#[repr(C)]
pub(super) struct MapCreateAttr {
    pub(super) kind: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
}

/// `struct ethtool_drvinfo`.
#[derive(Default)]
#[repr(C)]
pub(super) struct DriverInfo {
    pub(super) command: u32,
    pub(super) driver: [u8; 32],
    pub(super) version: [u8; 32],
    pub(super) firmware: [u8; 32],
    pub(super) bus: [u8; 32],
    pub(super) rom: [u8; 32],
    pub(super) reserved: [u8; 12],
    pub(super) private_flags: u32,
    pub(super) statistics: u32,
    pub(super) tests: u32,
    pub(super) eeprom: u32,
    pub(super) registers: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
pub(super) struct EthtoolValue {
    pub(super) command: u32,
    pub(super) data: u32,
}

const _: () = assert!(size_of::<DriverInfo>() == 196);
const _: () = assert!(size_of::<BatchAttr>() == 56);
const _: () = assert!(size_of::<ProgramAttr>() == 72);
