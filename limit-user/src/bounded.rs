//! Reading input that may never end, up to a size.

use std::io::{self, Read};

/// Reads everything, if it is at most `most` bytes.
///
/// # Errors
///
/// When there is more, or it cannot be read.
pub(crate) fn read(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if length as u64 > most {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {} MiB", most >> 20),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_fits_and_stops_at_what_does_not() {
        assert_eq!(
            read(io::repeat(7).take(1 << 20), 1 << 20).unwrap().len(),
            1 << 20
        );
        let error = read(io::repeat(7), 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 1 MiB");
    }
}
