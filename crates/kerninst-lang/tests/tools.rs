//! The scripts that are shipped.

use std::path::Path;

/// Would catch: a tool that the language no longer understands.
#[test]
fn tools_can_be_parsed() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    let mut tools = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        if let Err(errors) = kerninst_lang::parse(&source) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let shown: Vec<_> = errors
                .iter()
                .map(|e| e.render(&source, name, false))
                .collect();
            panic!("{}", shown.join("\n"));
        }
        tools += 1;
    }
    assert!(tools > 0);
}
