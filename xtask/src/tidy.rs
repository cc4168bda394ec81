//! `tidy`: the house rules that no other tool knows.
//!
//! A `.rs` file opens with `//!`; `unsafe` and maps occur only in their listed files; nothing is
//! marked as yet to be done; no file names a folder of somebody's machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, files_below};

mod code;

/// One breach of one rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    line: usize,
    rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.rule)
    }
}

/// Checks every file of the workspace.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let folders = machine_folders(workspace.root(), env::home_dir());
    let mut findings = Vec::new();
    let mut files = files_below(workspace.root())?;
    files.extend(
        HIDDEN
            .iter()
            .map(|file| workspace.root().join(file))
            .filter(|p| p.is_file()),
    );
    for path in files {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let name = path
            .strip_prefix(workspace.root())
            .unwrap_or(&path)
            .display()
            .to_string();
        findings.extend(text_findings(&name, &text, &folders));
        if name.ends_with(".rs") {
            findings.extend(rust_findings(&name, &text));
            let lines = text.lines().count();
            if lines > LONG {
                println!("{name}: {lines} lines; split it before it grows further");
            }
        }
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} breaches of the house rules", findings.len());
    }
    Ok(())
}

/// The rules for every text file.
fn text_findings(file: &str, text: &str, folders: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let mut find = |rule| {
            findings.push(Finding {
                file: file.to_owned(),
                line,
                rule,
            })
        };
        for mark in MARKS {
            if words(content).any(|word| word == mark) {
                find(format!("{mark}: do it, or say what is so without it"));
            }
        }
        for folder in folders {
            if content.contains(folder.as_str()) {
                find(format!("{folder} is a folder of one machine"));
            }
        }
    }
    findings
}

/// The rules for Rust.
fn rust_findings(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, rule: &str| {
        findings.push(Finding {
            file: file.to_owned(),
            line,
            rule: rule.to_owned(),
        });
    };
    if !text.starts_with("//!") {
        find(1, "opens without `//!`: say what the file is for");
    }
    for (line, code) in (1..).zip(code::only(text).lines()) {
        if words(code).any(|word| word == "unsafe") && !may_be_unsafe(file) {
            find(line, "`unsafe` outside the files that may have it");
        }
        if defines_map(code) && file != MAPS {
            find(line, "a map outside limit-ebpf/src/maps.rs");
        }
    }
    findings
}

fn may_be_unsafe(file: &str) -> bool {
    let module = file.strip_suffix(".rs").unwrap_or(file);
    UNSAFE.iter().any(|&allowed| {
        module
            .strip_prefix(allowed)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Whether the line has the attribute `map` or `btf_map`, by whatever path.
fn defines_map(code: &str) -> bool {
    code.split("#[").skip(1).any(|attribute| {
        let end = attribute.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        let path = end
            .and_then(|end| attribute.get(..end))
            .unwrap_or(attribute);
        matches!(path.rsplit("::").next(), Some("map" | "btf_map"))
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

/// Folders that exist on one machine only: homes, this workspace, and the folder that it lies in
/// unless that is one that every machine has.
fn machine_folders(root: &Path, home: Option<PathBuf>) -> Vec<String> {
    let mut folders = vec![root.to_path_buf()];
    folders.extend(home);
    folders.extend(root.parent().map(Path::to_path_buf));
    folders.retain(|folder| !COMMON.iter().any(|common| folder == Path::new(common)));
    let mut names: Vec<_> = folders
        .iter()
        .map(|folder| format!("{}/", folder.display()))
        .collect();
    names.push(["/", "home", "/"].concat());
    names.push(["/", "root", "/"].concat());
    names.sort();
    names.dedup();
    names
}

/// Files in hidden folders that are ours.
const HIDDEN: [&str; 2] = [".ci/run", ".cargo/config.toml"];

/// Modules that may have `unsafe`, with what lies below them.
const UNSAFE: [&str; 9] = [
    "limit-common/src/layout",
    "limit-ebpf/src/atomic",
    "limit-ebpf/src/bucket",
    "limit-ebpf/src/clock",
    "limit-ebpf/src/counters",
    "limit-ebpf/src/frame",
    "limit-ebpf/src/gate",
    "limit-ebpf/src/main",
    "limit-user/src/kernel/sys",
];

const MAPS: &str = "limit-ebpf/src/maps.rs";

/// Written so that this file does not contain them.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Lines in a file above which it is listed.
const LONG: usize = 500;

const COMMON: [&str; 9] = [
    "/",
    "/tmp",
    "/var/tmp",
    "/opt",
    "/srv",
    "/mnt",
    "/usr/src",
    "/usr/local/src",
    "/build",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_it_is_for() {
        assert!(rules("a.rs", "//! What it is for.\nfn a() {}\n").is_empty());
        assert_eq!(lines("a.rs", "// no\n//! too late\n"), [1]);
        assert_eq!(lines("a.rs", ""), [1]);
    }

    #[test]
    fn unsafe_occurs_only_where_it_may() {
        let text = "//! a\nfn a() {\n    unsafe { b() }\n}\n#[unsafe(no_mangle)]\nfn c() {}\n";
        assert_eq!(lines("limit-ebpf/src/pipeline.rs", text), [3, 5]);
        assert_eq!(lines("xtask/src/main.rs", text), [3, 5]);
        assert_eq!(lines("limit-user/src/kernel/system.rs", text), [3, 5]);
        for file in ["limit-ebpf/src/bucket.rs", "limit-ebpf/src/bucket/slot.rs"] {
            assert!(lines(file, text).is_empty(), "{file}");
        }
    }

    #[test]
    fn the_word_unsafe_is_free_in_prose_text_and_names() {
        let text =
            "//! unsafe\n#![forbid(unsafe_code)]\n/* unsafe */ const A: &str = \"unsafe\";\n";
        assert!(rules("a.rs", text).is_empty());
    }

    #[test]
    fn maps_stand_in_one_file() {
        let text = "//! a\n#[map]\nstatic A: B = C;\n#[macros::btf_map]\nstatic D: B = C;\n";
        assert_eq!(lines("limit-ebpf/src/bucket.rs", text), [2, 4]);
        assert!(lines(MAPS, text).is_empty());
        assert!(rules("a.rs", "//! a\n#[mapped]\n#[test]\nfn map() {}\n").is_empty());
    }

    #[test]
    fn nothing_is_left_to_be_done() {
        for mark in MARKS {
            let text = format!("//! a\n\n// {mark}: later\nlet a = \"not_{mark}\";\n");
            let findings = text_findings("a.md", &text, &[]);
            assert_eq!(
                findings
                    .iter()
                    .map(|finding| finding.line)
                    .collect::<Vec<_>>(),
                [3]
            );
        }
    }

    #[test]
    fn no_file_names_a_folder_of_one_machine() {
        let folders = machine_folders(Path::new("/data/me/limit"), Some("/data/me".into()));
        let homes = [["/", "home/you/z"].concat(), ["/", "root/.cargo"].concat()];
        for folder in ["/data/me/limit/x", "/data/me/y", &homes[0], &homes[1]] {
            assert!(!text_findings("a", folder, &folders).is_empty(), "{folder}");
        }
        assert!(text_findings("a", "/data/you /usr/lib /homes /tmp/a", &folders).is_empty());
    }

    #[test]
    fn a_clone_in_a_common_folder_forbids_only_itself() {
        let folders = machine_folders(Path::new("/tmp/limit"), None);
        assert!(text_findings("a", "/tmp/other", &folders).is_empty());
        assert!(!text_findings("a", "/tmp/limit/b", &folders).is_empty());
    }

    fn rules(file: &str, text: &str) -> Vec<Finding> {
        rust_findings(file, text)
    }

    fn lines(file: &str, text: &str) -> Vec<usize> {
        rules(file, text)
            .iter()
            .map(|finding| finding.line)
            .collect()
    }
}
