//! Text as people type it, to quantities and back: durations, rates, ports, integers.
//!
//! Every function is total: any text gives a value or a [`TextError`], never a panic. What `show`
//! prints with the functions at the end parses back to the same value.

use core::fmt::Write as _;

/// Why a text is not the quantity it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The text has another form.
    Malformed,
    /// The form is right, the number is outside every range we know.
    TooLarge,
}

/// Nanoseconds of a text such as `500ms`, `1s`, `5m`, `1h` or `1d`; whole numbers only.
///
/// # Errors
///
/// [`TextError`] when the text has another form, or the product does not fit 64 bits.
pub fn duration_ns(text: &str) -> Result<u64, TextError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ns = unit_ns(unit).ok_or(TextError::Malformed)?;
    unsigned(number)?
        .checked_mul(unit_ns)
        .ok_or(TextError::TooLarge)
}

/// Refill and interval in nanoseconds of a text such as `100/s`, `5/m` or `10/500ms`.
///
/// # Errors
///
/// [`TextError`] when the text has another form or a number does not fit 64 bits.
pub fn rate(text: &str) -> Result<(u64, u64), TextError> {
    let (refill, span) = text.split_once('/').ok_or(TextError::Malformed)?;
    let interval_ns = match unit_ns(span) {
        Some(ns) => ns,
        None => duration_ns(span)?,
    };
    Ok((unsigned(refill)?, interval_ns))
}

/// An integer of ASCII digits alone.
///
/// # Errors
///
/// [`TextError::Malformed`] for any other byte, a sign included.
pub fn unsigned(text: &str) -> Result<u64, TextError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TextError::Malformed);
    }
    text.parse().map_err(|_| TextError::TooLarge)
}

/// Inclusive ranges of ports of a text such as `80,8000-8010`, as typed: not sorted, not merged.
///
/// # Errors
///
/// [`TextError`] when the text has another form, or names a port that is not 1..=65535, or a range
/// that ends before it begins.
pub fn ports(text: &str) -> Result<Vec<(u16, u16)>, TextError> {
    text.split(',')
        .map(|part| port_range(part.trim()))
        .collect()
}

fn port_range(text: &str) -> Result<(u16, u16), TextError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first.trim())?, port(last.trim())?);
    if first <= last {
        Ok((first, last))
    } else {
        Err(TextError::TooLarge)
    }
}

fn port(text: &str) -> Result<u16, TextError> {
    match u16::try_from(unsigned(text)?) {
        Ok(0) | Err(_) => Err(TextError::TooLarge),
        Ok(port) => Ok(port),
    }
}

/// A duration in the largest unit that divides it; what [`duration_ns`] reads.
///
/// # Rounding
///
/// Parts of a millisecond are cut off.
#[must_use]
pub fn format_duration(ns: u64) -> String {
    let (unit, unit_ns) = UNITS
        .into_iter()
        .rev()
        .find(|(_, unit_ns)| ns >= *unit_ns && ns.is_multiple_of(*unit_ns))
        .unwrap_or(("ms", NS_PER_MS));
    format!("{}{unit}", ns / unit_ns)
}

/// A waiting time for a person, rounded up to a millisecond, or to a tenth of a second above 10 s.
#[must_use]
pub fn format_wait(ns: u64) -> String {
    let ms = ns.div_ceil(NS_PER_MS);
    match ms {
        0..10_000 => format!("{ms}ms"),
        10_000..600_000 => {
            let tenths = ms.div_ceil(100);
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        600_000..172_800_000 => format!("{}m", ms.div_ceil(60_000)),
        _ => format!("{}h", ms.div_ceil(3_600_000)),
    }
}

/// Ports as [`ports`] reads them.
#[must_use]
pub fn format_ports(ranges: &[(u16, u16)]) -> String {
    let mut text = String::new();
    for (first, last) in ranges {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    text
}

/// A number with a comma between groups of three digits.
#[must_use]
pub fn format_number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An amount of memory, in the largest binary unit that leaves at least one.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let (mut tenths, mut unit) = (bytes.saturating_mul(10), "B");
    for next in ["KiB", "MiB", "GiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths = tenths.div_ceil(1_024);
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// The name of `names` nearest to `typed`, if it is near enough to be a slip.
#[must_use]
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names
        .into_iter()
        .map(|name| (edits(typed, name), name))
        .min_by_key(|(d, _)| *d)?;
    (distance <= typed.chars().count().div_ceil(3)).then_some(name)
}

/// Levenshtein distance: insertions, removals and replacements between two texts.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (position, wanted) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = position + 1;
        for (column, found) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(wanted != *found);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

fn unit_ns(unit: &str) -> Option<u64> {
    UNITS
        .into_iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, ns)| ns)
}

const UNITS: [(&str, u64); 5] = [
    ("ms", NS_PER_MS),
    ("s", NS_PER_S),
    ("m", 60 * NS_PER_S),
    ("h", 3_600 * NS_PER_S),
    ("d", 86_400 * NS_PER_S),
];

/// Nanoseconds in a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_every_unit() {
        assert_eq!(duration_ns("500ms"), Ok(500_000_000));
        assert_eq!(duration_ns("1s"), Ok(NS_PER_S));
        assert_eq!(duration_ns("5m"), Ok(300 * NS_PER_S));
        assert_eq!(duration_ns("1h"), Ok(3_600 * NS_PER_S));
        assert_eq!(duration_ns("1d"), Ok(86_400 * NS_PER_S));
        assert_eq!(duration_ns("0s"), Ok(0));
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in [
            "", "1", "s", "1.5s", "-1s", "1 s", "1S", "1us", "1e3s", "+1s", "١s", "1s1s",
        ] {
            assert_eq!(duration_ns(text), Err(TextError::Malformed), "{text:?}");
        }
        assert_eq!(
            duration_ns("99999999999999999999s"),
            Err(TextError::TooLarge)
        );
        assert_eq!(
            duration_ns("18446744073709551615d"),
            Err(TextError::TooLarge)
        );
    }

    #[test]
    fn reads_a_rate_literally() {
        assert_eq!(rate("100/s"), Ok((100, NS_PER_S)));
        assert_eq!(rate("5/m"), Ok((5, 60 * NS_PER_S)));
        assert_eq!(rate("10/500ms"), Ok((10, 500_000_000)));
        assert_eq!(rate("0/0s"), Ok((0, 0)));
    }

    #[test]
    fn refuses_what_is_no_rate() {
        for text in [
            "",
            "100",
            "100/",
            "/s",
            "1.5/s",
            "100/s/s",
            "100 per s",
            "-1/s",
        ] {
            assert_eq!(rate(text), Err(TextError::Malformed), "{text:?}");
        }
    }

    #[test]
    fn reads_ports_and_ranges() {
        assert_eq!(ports("80"), Ok(vec![(80, 80)]));
        assert_eq!(ports("80, 8000-8010"), Ok(vec![(80, 80), (8000, 8010)]));
        assert_eq!(ports("1-65535"), Ok(vec![(1, 65_535)]));
        for text in ["", "80,", "http", "80-", "-80", "80--81"] {
            assert_eq!(ports(text), Err(TextError::Malformed), "{text:?}");
        }
        for text in ["0", "65536", "90-80", "99999999999999999999"] {
            assert_eq!(ports(text), Err(TextError::TooLarge), "{text:?}");
        }
    }

    #[test]
    fn rounds_a_wait_up() {
        assert_eq!(format_wait(0), "0ms");
        assert_eq!(format_wait(1), "1ms");
        assert_eq!(format_wait(9_999_000_001), "10.0s");
        assert_eq!(format_wait(59_010_000_000), "59.1s");
        assert_eq!(format_wait(601 * NS_PER_S), "11m");
    }

    #[test]
    fn groups_digits() {
        assert_eq!(format_number(0), "0");
        assert_eq!(format_number(999), "999");
        assert_eq!(format_number(1_000), "1,000");
        assert_eq!(format_number(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn shows_memory_in_binary_units() {
        assert_eq!(format_bytes(1_023), "1023 B");
        assert_eq!(format_bytes(1_024), "1.0 KiB");
        assert_eq!(format_bytes(30 * 1_024 * 1_024), "30.0 MiB");
        assert_eq!(format_bytes(5 * 1_024 * 1_024 * 1_024), "5.0 GiB");
    }

    #[test]
    fn suggests_a_slip_and_nothing_else() {
        assert_eq!(nearest("defualt", ["default", "dns"]), Some("default"));
        assert_eq!(nearest("web", ["default", "dns"]), None);
        assert_eq!(nearest("x", []), None);
    }

    proptest! {
        #[test]
        fn reads_back_a_formatted_duration(ms in 1..=u64::MAX / NS_PER_MS) {
            prop_assert_eq!(duration_ns(&format_duration(ms * NS_PER_MS)), Ok(ms * NS_PER_MS));
        }

        #[test]
        fn returns_for_every_text(text in ".{0,40}") {
            let _ = (duration_ns(&text), rate(&text), ports(&text), unsigned(&text));
        }

        #[test]
        fn reads_back_formatted_ports(starts in prop::collection::vec((1..=60_000u16, 0..5_000u16), 1..9)) {
            let ranges: Vec<_> = starts.into_iter().map(|(first, more)| (first, first + more)).collect();
            prop_assert_eq!(ports(&format_ports(&ranges)), Ok(ranges));
        }
    }
}
