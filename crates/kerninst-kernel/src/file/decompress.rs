//! Decompression, bounded: of a bzImage's payload, of modules.

use std::io::Read;

/// A kernel unpacks to some 60 MB, one with debug information to less than this.
const LARGEST: u64 = 1 << 30;

/// Unpacks data in a format that its first bytes tell; `None` if they tell none. What follows the compressed
/// data (a bzImage's payload ends with the unpacked size) is ignored.
pub(super) fn decompress(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let plain = match bytes {
        [0x1f, 0x8b, ..] => read(
            "gzip",
            flate2::bufread::GzDecoder::new(bytes),
            bytes.len() * 4,
        )?,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => read(
            "xz",
            lzma_rust2::XzReader::new(bytes, false),
            bytes.len() * 8,
        )?,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd(bytes)?,
        [0x02, 0x21, 0x4c, 0x18, ..] => lz4_legacy(bytes)?,
        [b'B', b'Z', b'h', ..] => {
            return Err("it is compressed with bzip2, which is not supported".into());
        }
        [0x5d, 0, 0, ..] => return Err("it is compressed with lzma, which is not supported".into()),
        [0x89, b'L', b'Z', b'O', ..] => {
            return Err("it is compressed with lzo, which is not supported".into());
        }
        _ => return Ok(None),
    };
    Ok(Some(plain))
}

fn read(format: &str, reader: impl Read, guess: usize) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(guess.min(128 << 20));
    reader
        .take(LARGEST + 1)
        .read_to_end(&mut plain)
        .map_err(|e| format!("damaged {format} data: {e}"))?;
    if plain.len() as u64 > LARGEST {
        return Err(format!(
            "the {format} data unpacks to more than {LARGEST} bytes"
        ));
    }
    Ok(plain)
}

fn zstd(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes)
        .map_err(|e| format!("damaged zstd data: {e}"))?;
    let plain = read("zstd", &mut decoder, bytes.len() * 6)?;
    // The decoder leaves this comparison to its user.
    let (stated, found) = (
        decoder.decoder.get_checksum_from_data(),
        decoder.decoder.get_calculated_checksum(),
    );
    match (stated, found) {
        (Some(stated), Some(found)) if stated != found => Err(format!(
            "damaged zstd data: its checksum is {found:#x}, not {stated:#x}"
        )),
        _ => Ok(plain),
    }
}

/// `lz4 -l`: a magic number, then blocks of at most 8 MiB with their compressed sizes in front.
fn lz4_legacy(bytes: &[u8]) -> Result<Vec<u8>, String> {
    const BLOCK: usize = 8 << 20;
    let damaged = |e: &dyn std::fmt::Display| format!("damaged lz4 data: {e}");
    let mut plain = Vec::new();
    let mut at = 4;
    let mut block = vec![0; BLOCK];
    while let Some(size) = crate::bytes::u32_at(bytes, at) {
        let Some(packed) = bytes.get(at + 4..).and_then(|b| b.get(..size as usize)) else {
            // The unpacked size that ends a payload looks like a block that is too long.
            break;
        };
        let n = lz4_flex::block::decompress_into(packed, &mut block).map_err(|e| damaged(&e))?;
        plain.extend_from_slice(block.get(..n).unwrap_or(&[]));
        if plain.len() as u64 > LARGEST {
            return Err(format!("the lz4 data unpacks to more than {LARGEST} bytes"));
        }
        at += 4 + size as usize;
        if n < BLOCK {
            break;
        }
    }
    if plain.is_empty() {
        Err(damaged(&"no block"))
    } else {
        Ok(plain)
    }
}
