//! Random functions: instructions whose branches go to each other, with table entries.

use proptest::prelude::*;

use super::Case;

/// One random instruction; branches go to another of the same function, by index.
#[derive(Clone, Debug)]
pub enum Item {
    Raw(&'static [u8]),
    Jcc(u8, usize),
    JccNear(u8, usize),
    Jmp(usize),
    Call,
    Fault(usize),
    Warn,
    JumpLabel(usize),
    Fill(u8),
}

const RAW: [&[u8]; 20] = [
    &[0x48, 0x89, 0xc2],                         // mov %rax, %rdx
    &[0x48, 0x8b, 0x87, 0x90, 0, 0, 0],          // mov 0x90(%rdi), %rax
    &[0x31, 0xc0],                               // xor %eax, %eax
    &[0x53],                                     // push %rbx
    &[0x5b],                                     // pop %rbx
    &[0xb8, 1, 0, 0, 0],                         // mov $1, %eax
    &[0x48, 0x01, 0xf8],                         // add %rdi, %rax
    &[0x48, 0x85, 0xc0],                         // test %rax, %rax
    &[0xc3],                                     // ret
    &[0x48, 0x8d, 0x05, 0, 1, 0, 0],             // lea 0x100(%rip), %rax
    &[0x65, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0x7f], // mov %gs:(%rip), %rax
    &[0xff, 0xd0],                               // call *%rax
    &[0xff, 0xe0],                               // jmp *%rax
    &[0x0f, 0x0b],                               // ud2
    &[0xc3, 0xcc, 0xcc, 0xcc, 0xcc],             // ret and fill
    &[0x48, 0xff, 0xc0],                         // inc %rax
    &[0xfb],                                     // sti
    &[0xf4],                                     // hlt
    &[0x90],                                     // nop
    &[0x0f, 0x01, 0xf8],                         // swapgs
];

pub fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        12 => (0..RAW.len() - 1).prop_map(|n| Item::Raw(RAW[n])),
        4 => (0u8..16, 0usize..30).prop_map(|(c, t)| Item::Jcc(c, t)),
        2 => (0u8..16, 0usize..30).prop_map(|(c, t)| Item::JccNear(c, t)),
        1 => (0usize..30).prop_map(Item::Jmp),
        1 => Just(Item::Call),
        1 => (0usize..30).prop_map(Item::Fault),
        1 => Just(Item::Warn),
        1 => (0usize..30).prop_map(Item::JumpLabel),
        1 => (1u8..9).prop_map(Item::Fill),
    ]
}

pub fn len(i: &Item) -> usize {
    match i {
        Item::Raw(b) => b.len(),
        Item::Jcc(..) | Item::Jmp(_) | Item::Warn => 2,
        Item::JccNear(..) => 6,
        Item::Call | Item::JumpLabel(_) => 5,
        Item::Fault(_) => 3,
        Item::Fill(n) => usize::from(*n),
    }
}

/// Lays the items out and makes a kernel of them.
pub fn case(items: &[Item], before: usize, after: usize, live: bool) -> Case {
    let mut starts = vec![5usize];
    for i in items {
        starts.push(starts.last().unwrap() + len(i));
    }
    let end = *starts.last().unwrap();
    let to = |t: usize| starts[t % items.len()];
    let mut code = vec![0x0f, 0x1f, 0x44, 0, 0];
    let mut tables: Vec<Box<dyn Fn(Case) -> Case>> = vec![];
    for (n, i) in items.iter().enumerate() {
        let next = starts[n + 1];
        match i {
            Item::Raw(b) => code.extend(*b),
            Item::Jcc(c, t) => {
                let d = to(*t) as i64 - next as i64;
                match i8::try_from(d) {
                    Ok(d) => code.extend([0x70 | c, d as u8]),
                    Err(_) => code.extend([0x31, 0xc0]),
                }
            }
            Item::JccNear(c, t) => {
                code.extend([0x0f, 0x80 | c]);
                code.extend((to(*t) as i32 - next as i32).to_le_bytes());
            }
            Item::Jmp(t) => {
                let d = to(*t) as i64 - next as i64;
                match i8::try_from(d) {
                    Ok(d) => code.extend([0xeb, d as u8]),
                    Err(_) => code.extend([0x31, 0xc0]),
                }
            }
            Item::Call => {
                code.push(0xe8);
                let g = end + after;
                code.extend((g as i32 - next as i32).to_le_bytes());
            }
            Item::Fault(t) => {
                code.extend([0x48, 0x8b, 0x07]);
                let (at, fixup) = (starts[n] as u64, to(*t) as u64);
                tables.push(Box::new(move |c| c.extable(at, fixup)));
            }
            Item::Warn => {
                code.extend([0x0f, 0x0b]);
                let at = starts[n] as u64;
                tables.push(Box::new(move |c| c.warn(at)));
            }
            Item::JumpLabel(t) => {
                code.extend([0x0f, 0x1f, 0x44, 0, 0]);
                let (at, target) = (starts[n] as u64, to(*t) as u64);
                tables.push(Box::new(move |c| c.jump_label(at, target)));
            }
            Item::Fill(n) => code.extend(vec![0xcc; usize::from(*n)]),
        }
    }
    let hex: String = code.iter().map(|b| format!("{b:02x}")).collect();
    let mut c = Case::new(&hex).padding(before, after).orc(0, 8);
    if !live {
        c = c.in_a_file();
    }
    tables.iter().fold(c, |c, t| t(c))
}
