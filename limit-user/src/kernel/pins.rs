//! Where the filter's pins are, and how folders of them come and go in one step.
//!
//! `ROOT/<network namespace inode>/v<layout>/` holds the shared maps, the clock program and
//! `interfaces/<index>/`. A filter is built in a folder of another name and renamed when complete,
//! and renamed away before it is deleted, so `v<layout>` is always whole. bpffs knows no regular
//! files and no dots in names.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use limit_common::layout;
use nix::{
    errno::Errno,
    sys::{
        statfs::{BPF_FS_MAGIC, statfs},
        statvfs::{FsFlags, statvfs},
    },
};

use super::{error::KernelError, sys};

/// The folder on bpffs under which each network namespace has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRoot(PathBuf);

impl PinRoot {
    /// The folder that is used unless another is named.
    pub const DEFAULT: &str = "/sys/fs/bpf/limit";

    /// The root at `path`, which need not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes sure that the root lies on bpffs.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoBpffs`] names the folder where it is to be mounted.
    pub fn require_bpffs(&self) -> Result<(), KernelError> {
        if fs::metadata(&self.0).is_ok_and(|root| !root.is_dir()) {
            return Err(KernelError::Call {
                action: format!("use {} as the pin root", self.0.display()),
                source: io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"),
            });
        }
        for path in self.0.ancestors() {
            match statfs(path) {
                Ok(system) if system.filesystem_type() == BPF_FS_MAGIC => return Ok(()),
                Ok(_) => break,
                // The folder that is to hold it decides.
                Err(Errno::ENOENT) => {}
                Err(errno) => {
                    let action = format!("statfs {}", path.display());
                    return Err(KernelError::call(action, errno.into()));
                }
            }
        }
        let parent = self.0.parent().filter(|path| path.ends_with("bpf"));
        Err(KernelError::NoBpffs {
            path: parent.unwrap_or(&self.0).to_path_buf(),
        })
    }
}

impl PinRoot {
    /// Whether the root lies where nothing can be pinned: on a file system mounted read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let nearest = self.0.ancestors().find_map(|path| statvfs(path).ok());
        nearest.is_some_and(|system| system.flags().contains(FsFlags::ST_RDONLY))
    }
}

impl Default for PinRoot {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

/// The network namespace of the calling thread.
#[derive(Debug)]
pub struct Namespace;

impl Namespace {
    /// Inode number of the namespace; the kernel may give it to another one later.
    pub fn inode() -> Result<u64, KernelError> {
        fs::metadata(NAMESPACE)
            .map(|file| file.ino())
            .map_err(|error| read_error(NAMESPACE, error))
    }

    /// Cookie of the namespace, never given twice; `None` before Linux 5.14.
    pub fn cookie() -> Result<Option<u64>, KernelError> {
        sys::namespace_cookie()
            .map_err(|error| KernelError::call("read the network namespace's cookie", error))
    }
}

/// The pins of one network namespace.
#[derive(Clone, Debug)]
pub(super) struct Pins {
    root: PinRoot,
    inode: u64,
}

impl Pins {
    /// The pins of the calling thread's namespace, whether or not there are any.
    pub(super) fn of_this_namespace(root: &PinRoot) -> Result<Self, KernelError> {
        root.require_bpffs()?;
        Ok(Self {
            root: root.clone(),
            inode: Namespace::inode()?,
        })
    }

    pub(super) fn root(&self) -> &PinRoot {
        &self.root
    }

    /// `ROOT/<inode>`.
    pub(super) fn namespace_folder(&self) -> PathBuf {
        self.root.0.join(self.inode.to_string())
    }

    /// `ROOT/<inode>/v<layout>`.
    pub(super) fn folder(&self) -> PathBuf {
        self.namespace_folder()
            .join(format!("v{}", layout::VERSION))
    }

    /// The pins of the interface with this index.
    pub(super) fn interface(&self, index: u32) -> InterfacePins {
        InterfacePins {
            folder: self.folder().join(INTERFACES).join(index.to_string()),
        }
    }

    /// Indexes of the interfaces that have a folder, in order.
    pub(super) fn interface_indexes(&self) -> Result<Vec<u32>, KernelError> {
        let mut indexes: Vec<u32> = names(&self.folder().join(INTERFACES))?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        indexes.sort_unstable();
        Ok(indexes)
    }

    /// The folder name of another layout version, if there is one.
    pub(super) fn other_layout(&self) -> Result<Option<String>, KernelError> {
        let own = format!("v{}", layout::VERSION);
        Ok(names(&self.namespace_folder())?.into_iter().find(|name| {
            let number = name.strip_prefix('v').unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && *name != own
        }))
    }

    /// Makes the folder of the namespace and its parent, if missing; another process may remove both
    /// again at once, until this one has locked them.
    pub(super) fn make_namespace_folder(&self) -> Result<(), KernelError> {
        make_folder(&self.root.0)?;
        match make_folder(&self.namespace_folder()) {
            Err(KernelError::Call { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            made => made,
        }
    }

    /// Removes the folder of the namespace and the root, if nothing is in them.
    pub(super) fn remove_empty_folders(&self) {
        // A folder that is not empty, or in use by another namespace, is meant to stay.
        if fs::remove_dir(self.namespace_folder()).is_ok() {
            fs::remove_dir(&self.root.0).ok();
        }
    }

    /// Begins a new filter in a folder that goes away unless it is committed.
    pub(super) fn begin(&self) -> Result<Building, KernelError> {
        let path = self.namespace_folder().join(BUILDING);
        remove_tree(&path)?;
        let building = Building { path, done: false };
        make_folder(&building.path)?;
        make_folder(&building.path.join(INTERFACES))?;
        Ok(building)
    }

    /// Removes what a killed process left half-built or half-deleted.
    pub(super) fn sweep(&self) -> Result<(), KernelError> {
        for name in [BUILDING, GOING] {
            remove_tree(&self.namespace_folder().join(name))?;
        }
        Ok(())
    }

    /// Takes the filter's pins away in one step, then deletes them.
    pub(super) fn remove_all(&self) -> Result<(), KernelError> {
        let going = self.namespace_folder().join(GOING);
        remove_tree(&going)?;
        match fs::rename(self.folder(), &going) {
            Ok(()) => remove_tree(&going),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(change_error("remove", &self.folder(), error)),
        }
    }
}

/// A filter that is being built; dropped before it is committed, it leaves nothing.
#[derive(Debug)]
pub(super) struct Building {
    path: PathBuf,
    done: bool,
}

impl Building {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the complete filter its name.
    pub(super) fn commit(mut self, name: &Path) -> Result<(), KernelError> {
        fs::rename(&self.path, name).map_err(|error| change_error("complete", name, error))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.done {
            // Whatever resists is swept by the next holder of the lock.
            remove_tree(&self.path).ok();
        }
    }
}

/// The pins of one interface.
#[derive(Clone, Debug)]
pub(super) struct InterfacePins {
    folder: PathBuf,
}

impl InterfacePins {
    /// The pin with this name.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The pinned link: its presence is what makes an interface attached.
    pub(super) fn link(&self) -> PathBuf {
        self.file("link")
    }

    pub(super) fn make(&self) -> Result<(), KernelError> {
        make_folder(&self.folder)
    }

    /// Removes the folder and all that is in it.
    pub(super) fn clear(&self) -> Result<(), KernelError> {
        remove_tree(&self.folder)
    }
}

/// Renames a pin over another, in one step.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), KernelError> {
    fs::rename(from, to).map_err(|error| change_error("rename", from, error))
}

/// Removes one pin; a missing one is fine.
pub(super) fn remove(path: &Path) -> Result<(), KernelError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(change_error("remove", path, error))
        }
        _ => Ok(()),
    }
}

fn make_folder(path: &Path) -> Result<(), KernelError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error)
            if error.raw_os_error() == Some(libc::EPERM)
                && path
                    .file_name()
                    .is_some_and(|name| name.as_encoded_bytes().contains(&b'.')) =>
        {
            Err(KernelError::DottedPin {
                path: path.to_path_buf(),
            })
        }
        Err(error) => Err(change_error("make", path, error)),
    }
}

/// Removes a folder of pins and folders; a missing one is fine.
fn remove_tree(path: &Path) -> Result<(), KernelError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(change_error("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// Names in a folder; none if it is missing.
fn names(path: &Path) -> Result<Vec<String>, KernelError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(&path.display().to_string(), error)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into()));
    names
        .collect::<io::Result<_>>()
        .map_err(|error| read_error(&path.display().to_string(), error))
}

fn read_error(path: &str, error: io::Error) -> KernelError {
    KernelError::call(format!("read {path}"), error)
}

fn change_error(verb: &str, path: &Path, error: io::Error) -> KernelError {
    KernelError::call(format!("{verb} {}", path.display()), error)
}

/// The calling thread's namespace; `/proc/self` would be the main thread's.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

const INTERFACES: &str = "interfaces";
const BUILDING: &str = "building";
const GOING: &str = "going";
