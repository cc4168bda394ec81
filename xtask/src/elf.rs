//! Takes the `.debug_*` sections out of the kernel object; BTF stays.
//!
//! bpf-linker makes BTF from debug information and leaves both; the debug sections are nine tenths of
//! the file and no loader reads them. Invariant: sections and symbols keep their numbers, so no
//! relocation changes; what is taken out becomes an empty entry.

use std::ops::Range;

use anyhow::{Context as _, Result, bail};

/// The object without its debug sections.
///
/// # Errors
///
/// It is no 64-bit little-endian ELF file, or offsets in it lie outside.
///
/// # Source
///
/// System V ABI, "Object Files": ELF header, section header, symbol table.
pub(crate) fn without_debug_sections(object: &[u8]) -> Result<Vec<u8>> {
    if !object.starts_with(b"\x7fELF\x02\x01") {
        bail!("not a 64-bit little-endian ELF file");
    }
    let mut headers = headers(object)?;
    let names = headers
        .get(number(object, 62, 2)?)
        .context("no section of names")?
        .data()?;
    let names = object.get(names).context("section names lie outside")?;
    let debug: Vec<bool> = headers
        .iter()
        .map(|header| header.is_debug(names))
        .collect::<Result<_>>()?;

    let mut output = object
        .get(..HEADER)
        .context("no room for an ELF header")?
        .to_vec();
    for (header, is_debug) in headers.iter_mut().zip(&debug) {
        if *is_debug {
            *header = Header([0; SECTION]);
            continue;
        }
        if header.kind()? == NULL || header.kind()? == NOBITS {
            continue;
        }
        let mut data = object
            .get(header.data()?)
            .context("a section lies outside")?
            .to_vec();
        if header.kind()? == SYMTAB {
            forget_symbols(&mut data, &debug)?;
        }
        pad(&mut output, number(&header.0, ALIGN, 8)?);
        set(&mut header.0, OFFSET, output.len())?;
        output.extend(data);
    }
    pad(&mut output, 8);
    let table = output.len();
    set(&mut output, 40, table)?;
    for header in headers {
        output.extend(header.0);
    }
    Ok(output)
}

/// Symbols that stand for a section that is gone become empty ones.
fn forget_symbols(symbols: &mut [u8], debug: &[bool]) -> Result<()> {
    for symbol in symbols.chunks_exact_mut(SYMBOL) {
        if debug.get(number(symbol, 6, 2)?).copied().unwrap_or(false) {
            symbol.fill(0);
        }
    }
    Ok(())
}

struct Header([u8; SECTION]);

impl Header {
    fn kind(&self) -> Result<usize> {
        number(&self.0, 4, 4)
    }

    fn data(&self) -> Result<Range<usize>> {
        let start = number(&self.0, OFFSET, 8)?;
        let end = start
            .checked_add(number(&self.0, 32, 8)?)
            .context("a section has no end")?;
        Ok(start..end)
    }

    /// Whether this is `.debug_x`, or `.rel.debug_x`, its relocations.
    fn is_debug(&self, names: &[u8]) -> Result<bool> {
        let name = names
            .get(number(&self.0, 0, 4)?..)
            .context("a section name lies outside")?;
        let name = name.strip_prefix(b".rel").unwrap_or(name);
        Ok(name.starts_with(b".debug_"))
    }
}

fn headers(object: &[u8]) -> Result<Vec<Header>> {
    let (start, count) = (number(object, 40, 8)?, number(object, 60, 2)?);
    if number(object, 58, 2)? != SECTION {
        bail!("section headers have an unknown size");
    }
    let table = object
        .get(start..)
        .context("the section headers lie outside")?;
    let (entries, _) = table.as_chunks();
    let entries = entries
        .get(..count)
        .context("the section headers lie outside")?;
    Ok(entries.iter().copied().map(Header).collect())
}

/// The little-endian number in the `size` bytes at `offset`.
fn number(bytes: &[u8], offset: usize, size: usize) -> Result<usize> {
    let field = bytes
        .get(offset..)
        .and_then(|rest| rest.get(..size))
        .context("cut short")?;
    let value = field
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    usize::try_from(value).context("a number is too large")
}

/// Writes the 8-byte number at `offset`.
fn set(bytes: &mut [u8], offset: usize, value: usize) -> Result<()> {
    let field = bytes
        .get_mut(offset..)
        .and_then(<[u8]>::first_chunk_mut)
        .context("cut short")?;
    *field = u64::try_from(value)
        .context("a number is too large")?
        .to_le_bytes();
    Ok(())
}

fn pad(output: &mut Vec<u8>, alignment: usize) {
    output.resize(output.len().next_multiple_of(alignment.max(1)), 0);
}

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

const NULL: usize = 0;
const SYMTAB: usize = 2;
const NOBITS: usize = 8;

/// Places in a section header.
const OFFSET: usize = 24;
const ALIGN: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_out_debug_sections_and_keeps_the_rest_and_its_numbers() {
        let object = object();
        let stripped = without_debug_sections(&object).unwrap();
        assert!(stripped.len() < object.len());
        let headers = headers(&stripped).unwrap();
        let data = |index: usize| &stripped[headers[index].data().unwrap()];
        assert_eq!(data(1), b"program");
        assert_eq!(data(2), b"");
        assert_eq!(data(3), b"");
        assert_eq!(data(4), b"types");
        assert_eq!(headers[4].data().unwrap().start % 8, 0);
        assert!(!stripped.windows(9).any(|bytes| bytes == b"debugging"));
    }

    #[test]
    fn forgets_the_symbols_of_what_is_gone() {
        let stripped = without_debug_sections(&object()).unwrap();
        let symbols = &stripped[headers(&stripped).unwrap()[5].data().unwrap()];
        assert_eq!(symbols[..SYMBOL], symbol(1));
        assert_eq!(symbols[SYMBOL..], [0; SYMBOL]);
    }

    #[test]
    fn doing_it_twice_changes_nothing() {
        let once = without_debug_sections(&object()).unwrap();
        assert_eq!(without_debug_sections(&once).unwrap(), once);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let object = object();
        for length in 0..object.len() {
            assert!(
                without_debug_sections(&object[..length]).is_err(),
                "{length} bytes"
            );
        }
    }

    fn symbol(section: u8) -> [u8; SYMBOL] {
        let mut symbol = [7; SYMBOL];
        symbol[6..8].copy_from_slice(&[section, 0]);
        symbol
    }

    fn object() -> Vec<u8> {
        let names = b"\0xdp\0.debug_info\0.rel.debug_info\0.BTF\0.symtab\0.strtab\0";
        let symbols = [symbol(1), symbol(2)].concat();
        let sections: [(&[u8], u32, &[u8]); 7] = [
            (b"\0", 0, b""),
            (b"xdp\0", 1, b"program"),
            (b".debug_info\0", 1, b"debugging"),
            (b".rel.debug_info\0", 9, b"relocating"),
            (b".BTF\0", 1, b"types"),
            (b".symtab\0", 2, &symbols),
            (b".strtab\0", 3, names),
        ];
        let mut object = vec![0; HEADER];
        object[..6].copy_from_slice(b"\x7fELF\x02\x01");
        object[58] = 64;
        object[60] = 7;
        object[62] = 6;
        let mut table = Vec::new();
        for (name, kind, data) in sections {
            let at = names
                .windows(name.len())
                .position(|window| window == name)
                .unwrap();
            let mut header = [0; SECTION];
            header[..4].copy_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            set(&mut header, OFFSET, object.len()).unwrap();
            set(&mut header, 32, data.len()).unwrap();
            set(&mut header, ALIGN, 8).unwrap();
            object.extend(data);
            table.extend(header);
        }
        let start = object.len();
        set(&mut object, 40, start).unwrap();
        object.extend(table);
        object
    }
}
