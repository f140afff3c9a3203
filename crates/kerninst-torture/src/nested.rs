//! A callout from within what a callout calls: the clock's own function is patched by hand, so that every reading of it calls
//! out for the time. Only the guard keeps that from going on until the stack's end.

use crate::Failure;
use crate::callouts::{List, ensure, text};
use crate::module::{self, Layout};
use kerninst_driver::abi::{Callouts, Site, site};
use kerninst_driver::{Area, Device, PatchText, load_patch_module, unload_patch_module};
use kerninst_kernel::Kernel;
use kerninst_patch::elf::{Object, RelocType, Relocation};
use std::sync::atomic::Ordering;
use std::time::Duration;

const NAME: &str = "torture_nested";
const CLOCK: &str = "ktime_get_mono_fast_ns";
/// An instruction of it that a jump fits on, in the kernels of the lab: `mov rbx, [r12+0x28]` (`struct tk_read_base::base`).
const DISPLACED: [u8; 5] = [0x49, 0x8b, 0x5c, 0x24, 0x28];
/// Where the patch starts in the module's text, behind its `init_module` and `cleanup_module`.
const ENTRY: u64 = 32;
/// Calls of each kind.
const CALLS: usize = 20;

/// The patch: calls `function`, adds 1 to the word at `counts` if the result is 0, otherwise to the next.
fn image(
    kernel: &Kernel,
    site: u64,
    function: u64,
    counts: u64,
) -> Result<(Vec<u8>, u64), Failure> {
    let layout = Layout::of(kernel)?;
    let mut object = Object::new();
    let section = object.section(".text", false, true, 32);
    let symbol = object.section_symbol(section);
    let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xc3]; // endbr64; xor eax, eax; ret
    code.resize(ENTRY as usize / 2, 0xcc);
    code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xc3]); // endbr64; ret
    code.resize(ENTRY as usize, 0xcc);
    // pushfq; push rax, rcx, rdx, rsi, rdi, r8 to r11
    code.extend([0x9c, 0x50, 0x51, 0x52, 0x56, 0x57]);
    code.extend([0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53]);
    // push rbp; mov rbp, rsp; and rsp, -16; call function
    code.extend([0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xf0, 0xe8]);
    let call = code.len() as u64;
    code.extend([0; 4]);
    code.extend([0x48, 0xb9]);
    code.extend(counts.to_le_bytes()); // mov rcx, counts
    // test rax, rax; jz +4; add rcx, 8; lock inc qword [rcx]
    code.extend([
        0x48, 0x85, 0xc0, 0x74, 4, 0x48, 0x83, 0xc1, 8, 0xf0, 0x48, 0xff, 0x01,
    ]);
    code.extend([0x48, 0x89, 0xec, 0x5d]); // mov rsp, rbp; pop rbp
    code.extend([0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]);
    code.extend([0x5f, 0x5e, 0x5a, 0x59, 0x58, 0x9d]);
    code.extend(DISPLACED);
    code.push(0xe9); // jmp back
    let back = code.len() as u64;
    code.extend([0; 4]);
    object.append(section, &code);
    for (offset, to) in [(call, function), (back, site + DISPLACED.len() as u64)] {
        let symbol = object.absolute(&format!("to_{offset}"), to);
        let kind = RelocType::Plt32;
        object.relocate(
            section,
            Relocation {
                offset,
                kind,
                symbol,
                addend: -4,
            },
        );
    }
    module::this_module(&mut object, &layout, NAME, symbol, 0, ENTRY as i64 / 2)?;
    module::information(&mut object, kernel, NAME, "")?;
    Ok((object.write().map_err(text)?, code.len() as u64))
}

/// Arms the patch, calls out, and takes it out again.
pub fn run(kernel: &Kernel, device: &Device, all: &Callouts, area: &Area) -> Result<(), Failure> {
    let clock = kernel.symbols().addr_of(CLOCK).ok_or("no clock")?;
    let code = kernel.bytes(clock, 0x80).ok_or("no text of the clock")?;
    let at = code.windows(DISPLACED.len()).position(|w| w == DISPLACED);
    let at = clock + at.ok_or("the clock has no such instruction")? as u64;
    let counts = [area.words().len() - 2, area.words().len() - 1];
    let (image, len) = image(kernel, at, all.time, area.address() + 8 * counts[0] as u64)?;
    let patch = load_patch_module(NAME, &image, len).map_err(text)?;
    let verdict = armed(kernel, device, all, area, &patch, (clock, at));
    let gone = unload_patch_module(NAME).map_err(text)?;
    verdict?;
    ensure(gone, || "the patch does not go".into())?;
    let [recursions, times] =
        counts.map(|n| area.words().get(n).map_or(0, |w| w.load(Ordering::Relaxed)));
    // Each reading of the clock by a callout is refused one; each other reading is given one, which reads the clock.
    ensure(
        recursions >= 2 * CALLS as u64 && times >= CALLS as u64 && recursions >= times,
        || format!("{recursions} recursions, {times} times"),
    )
}

fn armed(
    kernel: &Kernel,
    device: &Device,
    all: &Callouts,
    area: &Area,
    patch: &PatchText,
    (clock, at): (u64, u64),
) -> Result<(), Failure> {
    let entry = patch.base + ENTRY;
    let mut site = Site {
        addr: at,
        patch: entry,
        len: 5,
        kind: site::LIVE,
        ..Site::default()
    };
    let distance = entry.wrapping_sub(at + 5) as i32;
    let jump = [0xe9].into_iter().chain(distance.to_le_bytes());
    site.old
        .iter_mut()
        .zip(DISPLACED)
        .for_each(|(to, from)| *to = from);
    site.new
        .iter_mut()
        .zip(jump)
        .for_each(|(to, from)| *to = from);
    let mut list = List::new(area);
    let calls: Vec<_> = (0..2 * CALLS)
        .map(|n| list.call(if n % 2 == 0 { all.time } else { clock }, [0; 4]))
        .collect();
    let batch = device.poke(&[site], &[], patch).map_err(text)?;
    let ran = list.run(kernel);
    device.restore(batch).map_err(text)?;
    let range = (patch.base, patch.base + patch.len);
    device
        .prove_clear(&[range], Duration::from_secs(20))
        .map_err(text)?;
    ensure(device.forget(batch).map_err(text)?, || {
        "the batch is still armed".into()
    })?;
    ran?;
    let times: Vec<_> = calls.into_iter().map(|n| list.result(n)).collect();
    ensure(times.is_sorted() && times.first() > Some(&0), || {
        format!("times {times:?}")
    })
}
