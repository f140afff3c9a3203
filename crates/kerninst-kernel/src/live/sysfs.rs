//! `/sys`: build ids, sections of modules.

use std::path::Path;

use crate::Section;
use crate::bytes::u32_at;

/// The GNU build id in a file of ELF notes.
pub(crate) fn build_id(notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut at = 0;
    loop {
        let (name_len, len, kind) = (
            u32_at(notes, at)?,
            u32_at(notes, at + 4)?,
            u32_at(notes, at + 8)?,
        );
        let name_at = at + 12;
        let data_at = name_at.checked_add(name_len.checked_next_multiple_of(4)? as usize)?;
        let data = notes.get(data_at..data_at.checked_add(len as usize)?)?;
        if kind == NT_GNU_BUILD_ID && notes.get(name_at..)?.starts_with(b"GNU\0") {
            return Some(data.to_vec());
        }
        at = data_at.checked_add(len.checked_next_multiple_of(4)? as usize)?;
    }
}

/// Sections of a loaded module by address; empty if sysfs is not there.
pub(crate) fn module_sections(module: &str) -> Vec<Section> {
    let dir = Path::new("/sys/module").join(module).join("sections");
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut sections: Vec<Section> = entries
        .flatten()
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let addr = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
            Some(Section {
                name: entry.file_name().to_str()?.to_string(),
                addr,
                size: None,
            })
        })
        .collect();
    sections.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));
    sections
}

/// Build id of a loaded module.
pub(crate) fn module_build_id(module: &str) -> Option<Vec<u8>> {
    let notes = Path::new("/sys/module")
        .join(module)
        .join("notes/.note.gnu.build-id");
    build_id(&std::fs::read(notes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes() {
        let mut notes = Vec::new();
        for (name, kind, data) in [
            (&b"Xen\0"[..], 3u32, &b"no"[..]),
            (b"GNU\0", 3, b"\x01\x02\x03"),
        ] {
            for v in [name.len() as u32, data.len() as u32, kind] {
                notes.extend(v.to_le_bytes());
            }
            notes.extend(name);
            notes.extend(data);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(vec![1, 2, 3]));
        assert_eq!(build_id(&notes[..20]), None);
        assert_eq!(build_id(&[0xff; 40]), None);
    }
}
