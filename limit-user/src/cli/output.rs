//! Everything that is printed: results to stdout, as text or as one JSON object; the rest to stderr.
//!
//! A command hands over its result as data and as text; which of them is printed is decided here. A
//! reader that closed the pipe has what it wanted: that is no failure.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::error::Report;

/// Where results and diagnostics go, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// Text for people, or JSON for machines.
    #[must_use]
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether results are JSON.
    #[must_use]
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// Prints a result: `data` with `"ok": true` as one JSON line, or what `text` gives.
    ///
    /// # Errors
    ///
    /// When stdout cannot be written to.
    pub fn result(self, data: &impl Serialize, text: impl FnOnce() -> String) -> io::Result<()> {
        self.verdict(true, data, text)
    }

    /// Prints a result whose `"ok"` is `ok`.
    ///
    /// # Errors
    ///
    /// When stdout cannot be written to.
    pub fn verdict(
        self,
        ok: bool,
        data: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.json {
            print_json(&Answer { ok, data })
        } else {
            self.text(&text())
        }
    }

    /// Prints text as it is, with a line end if it has none.
    ///
    /// # Errors
    ///
    /// When stdout cannot be written to.
    pub fn text(self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        stdout.flush()
    }

    /// Tells a person what to look out for.
    pub fn warn(self, message: &str) {
        diagnose(&format!("warning: {message}"));
    }

    /// Tells a person what happens besides the result.
    pub fn note(self, message: &str) {
        diagnose(message);
    }

    /// Prints a failure: to stderr for people, and with JSON as one object on stdout.
    pub fn failure(self, report: &Report) {
        diagnose(&format!("error: {}", report.message));
        self.failure_object(report);
    }

    /// Prints a failure's object, for a failure whose text was printed otherwise.
    pub fn failure_object(self, report: &Report) {
        if self.json {
            // There is nowhere left to say that this failed.
            print_json(&Failure::from(report)).ok();
        }
    }
}

/// A result with the mark that it is one.
#[derive(Serialize)]
struct Answer<'a, T> {
    ok: bool,
    #[serde(flatten)]
    data: &'a T,
}

/// A failure as machines read it.
#[derive(Serialize)]
struct Failure<'a> {
    ok: bool,
    error: FailureBody<'a>,
}

#[derive(Serialize)]
struct FailureBody<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl<'a> From<&'a Report> for Failure<'a> {
    fn from(report: &'a Report) -> Self {
        Self {
            ok: false,
            error: FailureBody {
                code: &report.code,
                message: &report.message,
                field: report.field.as_deref(),
            },
        }
    }
}

fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.flush()
}

fn diagnose(message: &str) {
    // Without stderr there is nobody to tell.
    writeln!(io::stderr().lock(), "{}", printable(message)).ok();
}

/// Messages quote files and names of others: what could steer the terminal is written out.
fn printable(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for letter in message.chars() {
        if letter.is_control() && !matches!(letter, '\n' | '\t') {
            text.extend(letter.escape_default());
        } else {
            text.push(letter);
        }
    }
    text
}

/// Rows of cells as text, columns aligned; numbers to the right, the rest to the left.
#[must_use]
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(String::as_str);
        cells
            .chain(header.get(column).copied())
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let numeric = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column)).peekable();
        cells.peek().is_some()
            && cells
                .all(|cell| cell.starts_with(|c: char| c.is_ascii_digit() || c == '≈' || c == '-'))
    };
    let layout: Vec<(usize, bool)> = (0..header.len())
        .map(|column| (width(column), column > 0 && numeric(column)))
        .collect();
    let mut text = String::new();
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    for row in core::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, (width, right)) in row.iter().zip(&layout) {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, after) = if *right {
                (pad.as_str(), "")
            } else {
                ("", pad.as_str())
            };
            line.push_str(before);
            line.push_str(cell);
            line.push_str(after);
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    #[test]
    fn shapes_a_failure_as_machines_expect_it() {
        let mut report = Report {
            exit: Exit::Invalid,
            code: "out-of-range".to_owned(),
            message: "capacity 0".to_owned(),
            field: Some("policy.capacity".to_owned()),
        };
        let text = serde_json::to_string(&Failure::from(&report)).unwrap();
        assert_eq!(
            text,
            r#"{"ok":false,"error":{"code":"out-of-range","message":"capacity 0","field":"policy.capacity"}}"#
        );
        report.field = None;
        assert!(
            !serde_json::to_string(&Failure::from(&report))
                .unwrap()
                .contains("field")
        );
    }

    #[test]
    fn writes_control_characters_out() {
        assert_eq!(
            printable("a\x1b[2J\r\u{9b}\x7f\x07 é\n\tb"),
            "a\\u{1b}[2J\\r\\u{9b}\\u{7f}\\u{7} é\n\tb"
        );
    }

    #[test]
    fn aligns_numbers_to_the_right() {
        let rows = [("a", "1"), ("bcd", "1,000")].map(|(a, b)| vec![a.to_owned(), b.to_owned()]);
        assert_eq!(
            table(&["name", "n"], &rows),
            "name      n\na         1\nbcd   1,000\n"
        );
    }
}
