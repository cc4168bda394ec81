//! One writer at a time: an exclusive `flock` on the pin folder of the network namespace.
//!
//! The kernel drops the lock when its holder ends, however it ends.

use std::{
    fmt::Write as _,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    sys::stat::{major, minor},
};

use super::{
    error::KernelError,
    pins::{PinRoot, Pins},
};
use crate::interrupt::Interrupt;

/// The right to change the filter of one network namespace.
///
/// Dropping it gives it back, and removes the folders if no filter is in them.
#[derive(Debug)]
pub struct Lock {
    pins: Pins,
    _held: Flock<File>,
}

impl Lock {
    /// Takes the lock of the calling thread's network namespace, waiting up to `wait` for another
    /// holder to end.
    ///
    /// Leftovers of a killed holder that no packet meets are removed on the way.
    ///
    /// # Errors
    ///
    /// [`KernelError::Locked`] names the holder.
    pub fn acquire(
        root: &PinRoot,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<Self, KernelError> {
        let pins = Pins::of_this_namespace(root)?;
        let path = pins.namespace_folder();
        let start = Instant::now();
        loop {
            interrupt.check()?;
            pins.make_namespace_folder()?;
            match try_lock(&path)? {
                Attempt::Held(held) => {
                    pins.sweep()?;
                    return Ok(Self { pins, _held: held });
                }
                Attempt::Removed => continue,
                Attempt::Busy(holder) if start.elapsed() >= wait => {
                    return Err(KernelError::Locked { path, holder });
                }
                Attempt::Busy(_) => thread::sleep(PAUSE),
            }
        }
    }

    pub(super) fn pins(&self) -> &Pins {
        &self.pins
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.pins.remove_empty_folders();
    }
}

enum Attempt {
    Held(Flock<File>),
    /// The folder was removed by its last holder between opening and locking it.
    Removed,
    Busy(String),
}

fn try_lock(path: &Path) -> Result<Attempt, KernelError> {
    let error = |error| KernelError::call(format!("lock {}", path.display()), error);
    let folder = match File::open(path) {
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Attempt::Removed);
        }
        opened => opened.map_err(error)?,
    };
    match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
        Ok(held) => {
            let locked = held.metadata().map_err(error)?.ino();
            let here = fs::metadata(path).map(|folder| folder.ino()).ok();
            Ok(if here == Some(locked) {
                Attempt::Held(held)
            } else {
                Attempt::Removed
            })
        }
        Err((folder, Errno::EWOULDBLOCK)) => {
            let metadata = folder.metadata().map_err(error)?;
            Ok(Attempt::Busy(holder(&metadata)))
        }
        Err((_, errno)) => Err(error(errno.into())),
    }
}

/// Who holds the lock of a file, from `/proc/locks`.
fn holder(file: &fs::Metadata) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let Some(pid) = find_holder(&locks, file.dev(), file.ino()) else {
        return "another process".to_owned();
    };
    let mut text = format!("process {pid}");
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    if !words.is_empty() {
        // Writing to a string cannot fail.
        write!(text, " ({})", words.join(" ")).ok();
    }
    text
}

/// The process id in the line of `locks` that names this device and inode.
///
/// A line reads `1: FLOCK  ADVISORY  WRITE 4711 00:1c:12345 0 EOF`.
fn find_holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let kind = words.next()?;
        let pid = words.nth(2)?;
        (kind == "FLOCK" && words.next()? == place).then(|| pid.parse().ok())?
    })
}

/// Between two attempts while another process holds the lock.
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_holder_of_this_inode_only() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1c:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1c:78 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 00:1c:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 00:1c:77 0 EOF\n";
        let device = nix::sys::stat::makedev(0, 0x1c);
        assert_eq!(find_holder(locks, device, 77), Some(14));
        assert_eq!(find_holder(locks, device, 79), None);
    }
}
