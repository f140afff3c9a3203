//! Placeholder until the meter's options are settled.
use std::path::PathBuf;

/// What the meter plugin is asked to do.
#[derive(Debug, Clone)]
pub struct Meter {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Options passed on to it, `name=value`.
    pub options: Vec<String>,
}

/// What the meter wrote.
#[derive(Debug, Clone, Default)]
pub struct MeterReport {
    /// Its JSON lines.
    pub lines: Vec<serde_json::Value>,
}

impl Meter {
    pub(crate) fn argument(&self, out: &std::path::Path) -> crate::Result<String> {
        let mut words = vec![
            crate::qemu::text(&self.plugin)?,
            format!("out={}", crate::qemu::text(out)?),
        ];
        words.extend(self.options.iter().cloned());
        Ok(words.join(","))
    }

    pub(crate) fn read(&self, out: &std::path::Path) -> crate::Result<MeterReport> {
        let text = std::fs::read_to_string(out).unwrap_or_default();
        Ok(MeterReport {
            lines: text
                .lines()
                .filter_map(|l| serde_json::from_str(l).ok())
                .collect(),
        })
    }
}
