//! Where things lie: the workspace, its target folder, the kernel object and its record.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// The folders and files that the commands work on.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// Finds the workspace that this program was started for.
    pub(crate) fn find() -> Result<Self> {
        let start = match env::var_os("CARGO_MANIFEST_DIR") {
            Some(manifest) => PathBuf::from(manifest),
            None => env::current_dir().context("read the current folder")?,
        };
        let root = start
            .ancestors()
            .find(|folder| folder.join("limit-ebpf/Cargo.toml").is_file())
            .with_context(|| format!("{} is not inside the workspace", start.display()))?;
        let root = root
            .canonicalize()
            .with_context(|| format!("resolve {}", root.display()))?;
        Ok(Self {
            target: target_folder(&root)?,
            root,
        })
    }

    /// The top folder of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the core is built by itself, to be weighed.
    pub(crate) fn core_target(&self) -> PathBuf {
        self.target.join("core")
    }

    /// The target folder of the BPF build, apart from that of the host.
    pub(crate) fn bpf_target(&self) -> PathBuf {
        self.target.join("bpf")
    }

    /// Where `build-ebpf` puts the object.
    pub(crate) fn built_object(&self) -> PathBuf {
        self.target.join("bpf/limit.bpf.o")
    }

    /// Where `--install` puts tools that Debian does not package.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// The object in version control, which stable Rust embeds.
    pub(crate) fn committed_object(&self) -> PathBuf {
        self.root.join("limit-user/bpf/limit.bpf.o")
    }

    /// The record beside it.
    pub(crate) fn record(&self) -> PathBuf {
        self.root.join("limit-user/bpf/limit.bpf.o.toml")
    }

    /// A cargo command in the workspace, with the toolchain that runs this program.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }
}

/// This program lies in `<target>/<profile>/`, whatever configuration chose the target folder.
fn target_folder(root: &Path) -> Result<PathBuf> {
    let program = env::current_exe().context("find this program")?;
    match program.parent().and_then(Path::parent) {
        Some(folder) if folder.join("CACHEDIR.TAG").is_file() => Ok(folder.to_path_buf()),
        _ => Ok(root.join("target")),
    }
}

/// Reads a text file, naming it on failure.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// Every file below `folder` in the order of its path; hidden files and folders are left out, and
/// so are build folders and editors' backups.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list {}", folder.display()))?;
            let Ok(name) = entry.file_name().into_string() else {
                bail!("{} has a name that is not UTF-8", entry.path().display());
            };
            if name.starts_with('.') || name.ends_with('~') {
                continue;
            }
            let kind = entry
                .file_type()
                .with_context(|| format!("read type of {name}"))?;
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && !entry.path().join("CACHEDIR.TAG").is_file() {
                folders.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
