//! The record beside the committed object: from which sources and with which tools it was built.
//!
//! Invariant: the hash of the sources covers everything that can change the object's bytes except
//! the tools, and nothing that cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::build;
use crate::toolchain::Versions;
use crate::workspace::{Workspace, files_below, read_text};

/// What is known about the committed object.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// SHA-256 of what it is built from, as [`sources`] takes it.
    pub(crate) sources: String,
    /// SHA-256 of the object.
    pub(crate) object: String,
    /// Its size.
    pub(crate) bytes: usize,
    /// The tools that built it.
    pub(crate) tools: Versions,
}

impl Record {
    /// Reads the record; `None` where there is none yet.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        if !path.is_file() {
            return Ok(None);
        }
        let text = read_text(path)?;
        let record = toml::from_str(&text).with_context(|| format!("read {}", path.display()))?;
        Ok(Some(record))
    }

    /// Writes the record.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).context("format the record")?;
        fs::write(path, format!("{HEADING}{text}"))
            .with_context(|| format!("write {}", path.display()))
    }
}

/// Checks that the committed object is the recorded one, and built from the sources that are here.
///
/// # Errors
///
/// The record or the object is missing, or one of the two hashes differs.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let Some(record) = Record::read(&workspace.record())? else {
        bail!("{} is missing; {MEND}", workspace.record().display());
    };
    let object = workspace.committed_object();
    let bytes = fs::read(&object).with_context(|| format!("read {}", object.display()))?;
    if sha256(&bytes) != record.object {
        bail!(
            "{} is not the object that its record names; {MEND}",
            object.display()
        );
    }
    if sources(workspace)? != record.sources {
        bail!(
            "the sources are not those that {} was built from; {MEND}",
            object.display()
        );
    }
    Ok(())
}

/// SHA-256 over the sources of the object: the files of limit-ebpf, those of limit-common that are
/// compiled, what they inherit from the workspace, the locked crates and the recipe.
pub(crate) fn sources(workspace: &Workspace) -> Result<String> {
    let root = workspace.root();
    let mut parts = BTreeMap::new();
    let mut files = files_below(&root.join("limit-ebpf"))?;
    files.extend(files_below(&root.join("limit-common/src"))?);
    files.extend(MANIFESTS.map(|manifest| root.join(manifest)));
    for file in files {
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        parts.insert(name, bytes);
    }
    let mut names = BTreeSet::new();
    for manifest in MANIFESTS {
        names.extend(dependencies(&read_text(&root.join(manifest))?)?);
    }
    let workspace_manifest = read_text(&root.join("Cargo.toml"))?;
    parts.insert(
        "workspace".into(),
        inherited(&workspace_manifest, &names)?.into_bytes(),
    );
    let lock = read_text(&root.join("Cargo.lock"))?;
    parts.insert("lock".into(), locked(&lock, &names)?.into_bytes());
    parts.insert("recipe".into(), build::recipe().into_bytes());
    Ok(digest(&parts))
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn digest(parts: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    for (name, bytes) in parts {
        hash.update(format!("{name}\n{}\n", bytes.len()));
        hash.update(bytes);
    }
    format!("{:x}", hash.finalize())
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

/// The crates that a manifest always depends on; the kernel object is built without features.
fn dependencies(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: Manifest = toml::from_str(manifest).context("read a manifest")?;
    let optional = |value: &toml::Value| {
        value
            .get("optional")
            .and_then(toml::Value::as_bool)
            .unwrap_or(false)
    };
    let needed = manifest
        .dependencies
        .into_iter()
        .filter(|(_, value)| !optional(value));
    Ok(needed.map(|(name, _)| name).collect())
}

/// What the two crates inherit: edition, version and the named dependencies.
fn inherited(manifest: &str, names: &BTreeSet<String>) -> Result<String> {
    let manifest: toml::Table = toml::from_str(manifest).context("read Cargo.toml")?;
    let workspace = manifest
        .get("workspace")
        .context("no workspace in Cargo.toml")?;
    let at = |table: &str, key: &str| match workspace.get(table).and_then(|table| table.get(key)) {
        Some(value) => format!("{table}.{key} = {value}\n"),
        None => String::new(),
    };
    let package = ["edition", "version"]
        .map(|key| at("package", key))
        .concat();
    let dependencies: String = names.iter().map(|name| at("dependencies", name)).collect();
    Ok(package + &dependencies)
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The registry crates that `names` lead to, one a line. All of them: cargo derives the symbol names
/// of a crate from the versions of everything that it was built with, macros and build programs too.
fn locked(lock: &str, names: &BTreeSet<String>) -> Result<String> {
    let lock: Lock = toml::from_str(lock).context("read Cargo.lock")?;
    let mut wanted: Vec<String> = names.iter().cloned().collect();
    let mut lines = BTreeMap::new();
    while let Some(wish) = wanted.pop() {
        // "name", or "name version" where the lock holds several versions
        let mut words = wish.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        let package = lock
            .package
            .iter()
            .find(|package| {
                package.name == name && version.is_none_or(|version| package.version == version)
            })
            .with_context(|| format!("{wish} is not in Cargo.lock"))?;
        // Crates of the workspace have no checksum; their files are hashed, and `names` holds
        // what they depend on.
        let Some(checksum) = &package.checksum else {
            continue;
        };
        let line = format!("{name} {} {checksum}\n", package.version);
        if lines.insert(line, ()).is_none() {
            wanted.extend(package.dependencies.iter().cloned());
        }
    }
    Ok(lines.into_keys().collect())
}

const MANIFESTS: [&str; 2] = ["limit-ebpf/Cargo.toml", "limit-common/Cargo.toml"];

const HEADING: &str = "# Written by `cargo xtask build-ebpf --update`.\n";

const MEND: &str = "run `cargo xtask build-ebpf --update` and commit the object by itself";

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
        version = 4
        [[package]]
        name = "limit-common"
        version = "0.1.0"
        dependencies = ["aya"]
        [[package]]
        name = "aya"
        version = "9.0.0"
        checksum = "00"
        [[package]]
        name = "aya-ebpf"
        version = "0.2.1"
        checksum = "aa"
        dependencies = ["syn 2.0.0"]
        [[package]]
        name = "syn"
        version = "2.0.0"
        checksum = "bb"
        [[package]]
        name = "syn"
        version = "3.0.0"
        checksum = "cc"
    "#;

    #[test]
    fn the_lock_counts_only_where_the_object_leads() {
        let names = set(&["aya-ebpf", "limit-common"]);
        assert_eq!(
            locked(LOCK, &names).unwrap(),
            "aya-ebpf 0.2.1 aa\nsyn 2.0.0 bb\n"
        );
    }

    #[test]
    fn a_crate_that_is_not_locked_is_an_error() {
        let error = locked(LOCK, &set(&["absent"])).unwrap_err();
        assert_eq!(error.to_string(), "absent is not in Cargo.lock");
    }

    #[test]
    fn optional_dependencies_do_not_count() {
        let manifest = "[dependencies]\na = { workspace = true, optional = true }\nb = \"1\"\n";
        assert_eq!(dependencies(manifest).unwrap(), set(&["b"]));
        assert!(
            dependencies("[package]\nname = \"a\"\n")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn of_the_workspace_only_what_is_inherited_counts() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nlicense = \"MIT\"\n\
                        [workspace.dependencies]\na = \"1\"\nb = \"2\"\n";
        let text = inherited(manifest, &set(&["b"])).unwrap();
        assert_eq!(text, "package.edition = \"2024\"\ndependencies.b = \"2\"\n");
    }

    #[test]
    fn a_byte_moved_between_files_changes_the_digest() {
        let parts = |a: &str, b: &str| {
            BTreeMap::from([("a".to_owned(), a.into()), ("b".to_owned(), b.into())])
        };
        assert_ne!(digest(&parts("xy", "z")), digest(&parts("x", "yz")));
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let tools = Versions {
            rustc: "rustc 1".into(),
            rustc_llvm: "22".into(),
            bpf_linker: "0.13.0".into(),
            bpf_linker_llvm: "22".into(),
        };
        let record = Record {
            sources: "s".into(),
            object: "o".into(),
            bytes: 7,
            tools,
        };
        let text = toml::to_string(&record).unwrap();
        assert_eq!(toml::from_str::<Record>(&text).unwrap(), record);
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}
