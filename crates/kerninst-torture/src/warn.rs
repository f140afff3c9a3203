//! WARNs of the kernel itself, a known number of times: a module, made here, calls functions of the core kernel with
//! arguments that they warn of, go on after, and return from as if nothing were.
//!
//! - `drop_nlink` of a file without links: `WARN_ON`, every time; then the rest of the function, and calls that do not warn.
//! - `remove_proc_entry` of a name that is not there: `WARN` with a text, every time (fs/proc/generic.c).
//! - `vmemdup_user` of 3 GiB: `WARN_ON_ONCE` in `kvmalloc_node` (mm/util.c, 6.12: `__kvmalloc_node_noprof`).

use crate::module::{self, Layout};
use crate::{Failure, live};
use kerninst_kernel::Kernel;
use kerninst_patch::elf::{Object, RelocType, Relocation, SymbolId};

const NAME: &str = "torture_warn";
/// Calls of `drop_nlink` each round that do not warn.
const QUIET: u32 = 3;
/// What `init_module` returns, so that the module goes away by itself.
const RESULT: i32 = libc::ECANCELED;

/// Code and the relocations of its fields.
#[derive(Default)]
struct Code {
    bytes: Vec<u8>,
    fields: Vec<(RelocType, SymbolId, i64)>,
    at: Vec<u64>,
}

impl Code {
    fn put(&mut self, bytes: &[u8]) -> &mut Code {
        self.bytes.extend(bytes);
        self
    }

    /// A 4-byte field that the loader fills in.
    fn field(&mut self, kind: RelocType, symbol: SymbolId, addend: i64) -> &mut Code {
        self.at.push(self.bytes.len() as u64);
        self.fields.push((kind, symbol, addend));
        self.put(&[0; 4])
    }

    fn call(&mut self, function: SymbolId) -> &mut Code {
        self.put(&[0xe8]).field(RelocType::Plt32, function, -4)
    }
}

/// The module. Its `init_module` keeps a frame pointer, by which the unwinder goes on where it finds no ORC data
/// (arch/x86/kernel/unwind_orc.c, orc_fp_entry).
fn build(kernel: &Kernel, times: u32) -> Result<Vec<u8>, Failure> {
    let layout = Layout::of(kernel)?;
    let mut object = Object::new();
    let text = object.section(".text", false, true, 16);
    let data = object.section(".data", true, false, 64);
    let text_symbol = object.section_symbol(text);
    let data_symbol = object.section_symbol(data);
    let mut function = |name: &str| {
        let addr = kernel.symbols().addr_of(name);
        let addr = addr.ok_or_else(|| format!("this kernel has no {name}"))?;
        Ok::<_, Failure>(object.absolute(&format!("{name}_address"), addr))
    };
    let drop_nlink = function("drop_nlink")?;
    let remove = function("remove_proc_entry")?;
    let duplicate = function("vmemdup_user")?;
    // An inode of zeros, and the name.
    let inode = layout.size("inode")?.next_multiple_of(8);
    let links = u32::try_from(layout.at("inode", "__i_nlink")?).map_err(|e| e.to_string())?;
    object.append(data, &vec![0; usize::try_from(inode).unwrap_or(0)]);
    object.append(data, b"kerninst-torture-is-not-there\0");

    let mut code = Code::default();
    code.put(&[0xf3, 0x0f, 0x1e, 0xfa]) // endbr64
        .put(&[0x55, 0x48, 0x89, 0xe5, 0x53, 0x53]) // push rbp; mov rbp, rsp; push rbx; push rbx
        .put(&[0xbb])
        .put(&times.to_le_bytes()); // mov ebx, times
    let head = code.bytes.len();
    for n in 0..=QUIET {
        code.put(&[0x48, 0xc7, 0xc7])
            .field(RelocType::Abs32S, data_symbol, 0); // mov rdi, inode
        if n == 0 {
            code.put(&[0xc7, 0x87])
                .put(&links.to_le_bytes())
                .put(&[0; 4]); // mov dword [rdi+links], 0
        }
        code.call(drop_nlink);
    }
    code.put(&[0x48, 0xc7, 0xc7])
        .field(RelocType::Abs32S, data_symbol, inode as i64) // mov rdi, name
        .put(&[0x31, 0xf6]) // xor esi, esi
        .call(remove)
        .put(&[0x31, 0xff, 0xbe]) // xor edi, edi; mov esi, 3 GiB
        .put(&(3u32 << 30).to_le_bytes())
        .call(duplicate)
        .put(&[0xff, 0xcb, 0x0f, 0x85]); // dec ebx; jnz head
    let back = head as i64 - (code.bytes.len() as i64 + 4);
    code.put(&(back as i32).to_le_bytes())
        .put(&[0xb8])
        .put(&(-RESULT).to_le_bytes()) // mov eax, -RESULT
        .put(&[0x5b, 0x5b, 0x5d, 0xc3]); // pop rbx; pop rbx; pop rbp; ret
    object.append(text, &code.bytes);
    for (offset, (kind, symbol, addend)) in code.at.into_iter().zip(code.fields) {
        let r = Relocation {
            offset,
            kind,
            symbol,
            addend,
        };
        object.relocate(text, r);
    }
    // It never gets so far that `cleanup_module` is called.
    module::this_module(&mut object, &layout, NAME, text_symbol, 0, 0)?;
    module::information(&mut object, kernel, NAME, "")?;
    object.write().map_err(|e| e.to_string())
}

/// Makes the kernel warn.
pub fn run(times: u32) -> Result<(), Failure> {
    let image = build(&live()?, times.max(1))?;
    match module::load(&image) {
        Err(e) if e.raw_os_error() == Some(RESULT) => {}
        Err(e) => return Err(format!("the kernel refused the module: {e}")),
        Ok(()) => return Err("the module was to go away by itself".into()),
    }
    let line = serde_json::json!({"job": "warn", "times": times.max(1), "quiet": QUIET});
    println!("{line}");
    Ok(())
}
