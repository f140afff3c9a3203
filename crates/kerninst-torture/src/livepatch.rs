//! A real livepatch beside us: a module, made here for the running kernel, that replaces the function of getppid(2) by
//! one that returns a constant.
//!
//! Layouts from BTF; what must be filled in: include/linux/livepatch.h (the parts "external" of `struct klp_patch`,
//! `klp_object`, `klp_func`). Arrays end with an element of zeros.

use crate::module::{self, Layout};
use crate::{Failure, live};
use kerninst_kernel::Kernel;
use kerninst_patch::elf::{Names, Object, Place, RelocType, Relocation, Symbol};
use std::process::Command;
use std::time::{Duration, Instant};

const NAME: &str = "torture_livepatch";
const FUNCTION: &str = "__x64_sys_getppid";
/// What getppid(2) returns when it is patched.
const VALUE: i32 = 4242;
const SYSFS: &str = "/sys/kernel/livepatch/torture_livepatch";

/// The module. Its code: the replacement at 0, `init_module` at 16, `cleanup_module` at 64.
fn build(kernel: &Kernel) -> Result<Vec<u8>, Failure> {
    let layout = Layout::of(kernel)?;
    let enable = kernel.symbols().addr_of("klp_enable_patch");
    let enable = enable.ok_or("this kernel has no livepatching")?;
    let mut object = Object::new();
    let text = object.section(".text", false, true, 16);
    let data = object.section(".data", true, false, 64);
    let text_symbol = object.section_symbol(text);
    let data_symbol = object.section_symbol(data);
    let enable = object.absolute("klp_enable_patch_address", enable);

    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let mut code = ENDBR.to_vec();
    code.push(0xb8); // mov eax, VALUE
    code.extend(VALUE.to_le_bytes());
    code.push(0xc3);
    code.resize(16, 0xcc);
    code.extend(ENDBR);
    code.extend([0x48, 0x83, 0xec, 0x08]); // sub rsp, 8
    code.extend([0x48, 0xc7, 0xc7, 0, 0, 0, 0]); // mov rdi, patch
    code.extend([0xe8, 0, 0, 0, 0]); // call klp_enable_patch
    code.extend([0x48, 0x83, 0xc4, 0x08, 0xc3]); // add rsp, 8; ret
    code.resize(64, 0xcc);
    code.extend(ENDBR);
    code.push(0xc3);
    object.append(text, &code);
    // The kernel wants to know the replacement's size, from its symbol.
    object.symbol(Symbol {
        name: "livepatched_getppid".into(),
        place: Place::Section(text, 0),
        size: 10,
        names: Names::Function,
        global: false,
    });
    let relocate = |object: &mut Object, section, offset, kind, symbol, addend| {
        let r = Relocation {
            offset,
            kind,
            symbol,
            addend,
        };
        object.relocate(section, r);
    };
    relocate(&mut object, text, 27, RelocType::Abs32S, data_symbol, 0);
    relocate(&mut object, text, 32, RelocType::Plt32, enable, -4);

    // The patch, then two objects, then two functions, then the name.
    let objects = layout.size("klp_patch")?.next_multiple_of(8);
    let functions = objects + 2 * layout.size("klp_object")?.next_multiple_of(8);
    let name = functions + 2 * layout.size("klp_func")?.next_multiple_of(8);
    object.append(data, &vec![0; usize::try_from(name).unwrap_or(0)]);
    object.append(data, format!("{FUNCTION}\0").as_bytes());

    let this_symbol = module::this_module(&mut object, &layout, NAME, text_symbol, 16, 64)?;
    let to = |symbol, addend: u64| (symbol, addend as i64);
    for (offset, (symbol, addend)) in [
        (layout.at("klp_patch", "mod")?, to(this_symbol, 0)),
        (layout.at("klp_patch", "objs")?, to(data_symbol, objects)),
        (
            objects + layout.at("klp_object", "funcs")?,
            to(data_symbol, functions),
        ),
        (
            functions + layout.at("klp_func", "old_name")?,
            to(data_symbol, name),
        ),
        (
            functions + layout.at("klp_func", "new_func")?,
            to(text_symbol, 0),
        ),
    ] {
        relocate(&mut object, data, offset, RelocType::Abs64, symbol, addend);
    }
    module::information(&mut object, kernel, NAME, "livepatch=Y\0")?;
    object.write().map_err(|e| e.to_string())
}

/// Waits until every task has gone over to (or back from) the patch.
fn settle(what: &str) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let state = std::fs::read_to_string(format!("{SYSFS}/transition"));
        match state.as_deref().map(str::trim) {
            Ok("0") | Err(_) => return Ok(()),
            _ if Instant::now() > until => return Err(format!("{what} does not come to an end")),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn getppid() -> i64 {
    // SAFETY: has no effect.
    unsafe { libc::syscall(libc::SYS_getppid) }
}

/// Patches, runs the command, takes the patch out. Calls getppid(2) once while it is patched, and once after.
pub fn run(command: &[String]) -> Result<(), Failure> {
    let image = build(&live()?)?;
    module::load(&image).map_err(|e| format!("the kernel refused the livepatch: {e}"))?;
    settle("patching")?;
    if getppid() != i64::from(VALUE) {
        return Err("the function is not patched".into());
    }
    let status = Command::new(command.first().ok_or("no command")?)
        .args(&command[1..])
        .status()
        .map_err(|e| e.to_string())?;
    std::fs::write(format!("{SYSFS}/enabled"), "0").map_err(|e| format!("disabling: {e}"))?;
    settle("unpatching")?;
    module::unload(NAME)?;
    if getppid() == i64::from(VALUE) {
        return Err("the function is still patched".into());
    }
    println!("{}", serde_json::json!({"job": "livepatch"}));
    if !status.success() {
        return Err(format!("the command ended with {status}"));
    }
    Ok(())
}
