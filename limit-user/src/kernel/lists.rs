//! The allow and deny lists: longest-prefix tries, one for each list and family.
//!
//! `LIST_SIZES` tells the program which tries are empty, so that it looks nothing up there. A size
//! is raised before an insert and lowered after a removal: a process that dies in between leaves a
//! size that is too high, which costs a look-up and changes no verdict.

use std::{collections::BTreeSet, io};

use aya::{
    Pod,
    maps::{IterableMap, LpmTrie, MapData, lpm_trie},
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use limit_common::layout::{LIST_CAPACITY, ListSizes};

use super::{
    error::{KernelError, map_io},
    tables::{Tables, visit_batches},
};

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Prefixes that bypass the filter.
    Allow,
    /// Prefixes that are blocked.
    Deny,
}

impl List {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The trie of one list and family; `N` is the length of an address in bytes.
pub(super) type Trie<const N: usize> = LpmTrie<MapData, [u8; N], u32>;

impl Tables {
    /// Adds `prefixes` to `list`, and says how many were new.
    ///
    /// # Errors
    ///
    /// [`KernelError::ListFull`] names the list; prefixes before the one that found no room stay.
    pub fn list_add(&mut self, list: List, prefixes: &[IpNet]) -> Result<usize, KernelError> {
        let mut after = self.sizes()?;
        let raised = prefixes
            .iter()
            .fold(after, |sizes, prefix| raise(sizes, list, prefix));
        self.set_sizes(raised)?;
        let mut added = 0;
        let mut result = Ok(());
        for prefix in prefixes {
            match self.insert(list, prefix) {
                Ok(()) => {
                    added += 1;
                    after = raise(after, list, prefix);
                }
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    result = Err(full(list, prefix));
                    break;
                }
                Err(error) => {
                    result = Err(KernelError::call(on(list, "add", prefix), error));
                    break;
                }
            }
        }
        self.set_sizes(after)?;
        result.map(|()| added)
    }

    /// Removes `prefixes` from `list`, and says how many were there.
    pub fn list_remove(&mut self, list: List, prefixes: &[IpNet]) -> Result<usize, KernelError> {
        let mut removed = 0;
        for prefix in prefixes {
            match self.delete(list, prefix) {
                Ok(()) => removed += 1,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(KernelError::call(on(list, "remove", prefix), error)),
            }
        }
        self.recount(list)?;
        Ok(removed)
    }

    /// Makes `list` equal to `prefixes`: what is missing is added before what is left over goes.
    ///
    /// # Errors
    ///
    /// [`KernelError::ListFull`] if old and new together do not fit; the list is unchanged then.
    pub fn list_replace(&mut self, list: List, prefixes: &[IpNet]) -> Result<(), KernelError> {
        let old: BTreeSet<IpNet> = self.list_entries(list)?.into_iter().collect();
        let new: BTreeSet<IpNet> = prefixes.iter().map(IpNet::trunc).collect();
        for is_v4 in [true, false] {
            let mut both = old
                .union(&new)
                .filter(|prefix| matches!(prefix, IpNet::V4(_)) == is_v4);
            if let Some(beyond) = both.nth(LIST_CAPACITY as usize) {
                return Err(full(list, beyond));
            }
        }
        let missing: Vec<IpNet> = new.difference(&old).copied().collect();
        self.list_add(list, &missing)?;
        let left_over: Vec<IpNet> = old.difference(&new).copied().collect();
        self.list_remove(list, &left_over)?;
        Ok(())
    }

    /// The entries of `list` in order of address and length.
    pub fn list_entries(&self, list: List) -> Result<Vec<IpNet>, KernelError> {
        let (v4, v6) = match list {
            List::Allow => (&self.allowed_v4, &self.allowed_v6),
            List::Deny => (&self.blocked_v4, &self.blocked_v6),
        };
        let mut entries: Vec<IpNet> = Vec::new();
        for (length, address) in prefixes(v4, list)? {
            entries.extend(Ipv4Net::new(address.into(), length).ok().map(IpNet::V4));
        }
        for (length, address) in prefixes(v6, list)? {
            entries.extend(Ipv6Net::new(address.into(), length).ok().map(IpNet::V6));
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn insert(&mut self, list: List, prefix: &IpNet) -> io::Result<()> {
        let result = match (list, prefix.trunc()) {
            (List::Allow, IpNet::V4(net)) => self.allowed_v4.insert(&key_v4(net), 1, NO_EXIST),
            (List::Allow, IpNet::V6(net)) => self.allowed_v6.insert(&key_v6(net), 1, NO_EXIST),
            (List::Deny, IpNet::V4(net)) => self.blocked_v4.insert(&key_v4(net), 1, NO_EXIST),
            (List::Deny, IpNet::V6(net)) => self.blocked_v6.insert(&key_v6(net), 1, NO_EXIST),
        };
        result.map_err(map_io)
    }

    fn delete(&mut self, list: List, prefix: &IpNet) -> io::Result<()> {
        let result = match (list, prefix.trunc()) {
            (List::Allow, IpNet::V4(net)) => self.allowed_v4.remove(&key_v4(net)),
            (List::Allow, IpNet::V6(net)) => self.allowed_v6.remove(&key_v6(net)),
            (List::Deny, IpNet::V4(net)) => self.blocked_v4.remove(&key_v4(net)),
            (List::Deny, IpNet::V6(net)) => self.blocked_v6.remove(&key_v6(net)),
        };
        result.map_err(map_io)
    }

    /// Writes the sizes that `list` really has, which also heals what a killed writer left.
    fn recount(&mut self, list: List) -> Result<(), KernelError> {
        let entries = self.list_entries(list)?;
        let mut sizes = self.sizes()?;
        for family in [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())] {
            sizes = changed(sizes, list, &family, |_| 0);
        }
        for entry in &entries {
            sizes = raise(sizes, list, entry);
        }
        self.set_sizes(sizes)
    }

    fn sizes(&self) -> Result<ListSizes, KernelError> {
        self.list_sizes
            .get(&0, 0)
            .map_err(|error| KernelError::map("read the list sizes", error))
    }

    fn set_sizes(&mut self, sizes: ListSizes) -> Result<(), KernelError> {
        self.list_sizes
            .set(0, sizes, 0)
            .map_err(|error| KernelError::map("write the list sizes", error))
    }
}

/// `sizes` with the one of this list and family changed.
fn changed(
    mut sizes: ListSizes,
    list: List,
    prefix: &IpNet,
    change: impl Fn(u32) -> u32,
) -> ListSizes {
    let size = match (list, prefix) {
        (List::Allow, IpNet::V4(_)) => &mut sizes.allowed_v4,
        (List::Allow, IpNet::V6(_)) => &mut sizes.allowed_v6,
        (List::Deny, IpNet::V4(_)) => &mut sizes.blocked_v4,
        (List::Deny, IpNet::V6(_)) => &mut sizes.blocked_v6,
    };
    *size = change(*size);
    sizes
}

fn raise(sizes: ListSizes, list: List, prefix: &IpNet) -> ListSizes {
    changed(sizes, list, prefix, |size| size.saturating_add(1))
}

/// Prefix length and address of every entry.
fn prefixes<const N: usize>(trie: &Trie<N>, list: List) -> Result<Vec<(u8, [u8; N])>, KernelError>
where
    [u8; N]: Pod,
{
    let action = || format!("read the {} list", list.name());
    let mut found = Vec::new();
    let whole = visit_batches(trie.map(), &mut |key, _| {
        let Some((length, address)) = key.split_first_chunk() else {
            return;
        };
        let length = u8::try_from(u32::from_ne_bytes(*length)).ok();
        found.extend(length.zip(address.try_into().ok()));
    });
    match whole {
        Ok(true) => return Ok(found),
        Ok(false) => found.clear(),
        Err(error) => return Err(KernelError::call(action(), error)),
    }
    for key in trie.keys() {
        let key = key.map_err(|error| KernelError::map(action(), error))?;
        found.extend(
            u8::try_from(key.prefix_len())
                .ok()
                .map(|length| (length, key.data())),
        );
    }
    Ok(found)
}

fn key_v4(net: Ipv4Net) -> lpm_trie::Key<[u8; 4]> {
    lpm_trie::Key::new(u32::from(net.prefix_len()), net.network().octets())
}

fn key_v6(net: Ipv6Net) -> lpm_trie::Key<[u8; 16]> {
    lpm_trie::Key::new(u32::from(net.prefix_len()), net.network().octets())
}

fn full(list: List, prefix: &IpNet) -> KernelError {
    let family = match prefix {
        IpNet::V4(_) => "IPv4",
        IpNet::V6(_) => "IPv6",
    };
    KernelError::ListFull {
        list: list.name(),
        family,
        capacity: LIST_CAPACITY,
    }
}

fn on(list: List, verb: &str, prefix: &IpNet) -> String {
    format!("{verb} {prefix} on the {} list", list.name())
}

/// `BPF_NOEXIST`: insert only what is not there.
const NO_EXIST: u64 = 1;
