//! Random scripts of the probe language: valid ones mostly, and some that nearly are.

use crate::random::Random;

/// Functions that run often, in all contexts: system calls, scheduler, faults, interrupts, network, and what the
/// driver's own callouts use.
pub const HOT: &[&str] = &[
    "vfs_read",
    "vfs_write",
    "do_sys_openat2",
    "__x64_sys_getppid",
    "kmem_cache_free",
    "kmem_cache_alloc*",
    "__schedule",
    "schedule",
    "try_to_wake_up",
    "enqueue_task_fair",
    "update_curr",
    "handle_mm_fault",
    "do_user_addr_fault",
    "hrtimer_interrupt",
    "update_process_times",
    "rcu_core",
    "nmi_handle",
    "tcp_v4_rcv",
    "tcp_sendmsg",
    "tcp_rcv_established",
    "ktime_get_mono_fast_ns",
    "ktime_get",
    "copy_from_kernel_nofault",
    "copy_from_user_nmi",
    "stack_trace_save_regs",
    "unwind_next_frame",
    "_raw_spin_lock*",
    "__rcu_read_*lock",
    "pipe_*",
    "exit_mm",
    "security_file_*",
];

/// Addresses at which something may go wrong.
const ADDRESSES: &[&str] = &[
    "0",
    "8",
    "0x7fffffffeffc",
    "0x7ffffffffffd",
    "0x800000000000",
    "0x8000000000000000",
    "0xdead000000000100",
    "0xffff7fffffffffff",
    "0xffff800000000000",
    "0xffff888000000000",
    "0xffffc90000000ffd",
    "0xffffffffc0f00000",
    "0xffffffffff600000",
    "0xfffffffffffffff4",
    "0xffffffffffffffff",
    "curtask",
    "reg(\"rsp\")",
    "reg(\"rdi\")",
    "reg(\"rax\")",
    "reg(\"rip\")",
];

const NUMBERS: &[&str] = &[
    "pid",
    "tid",
    "cpu",
    "nsecs",
    "elapsed",
    "0",
    "1",
    "-1",
    "63",
    "64",
    "0x7fffffffffffffff",
    "1e6",
    "10ms",
    "'a'",
    "curtask",
    "ip",
    "reg(\"rax\")",
    "reg(\"r11\")",
    "reg(\"rsp\")",
    "$1",
    "$a",
    "$b",
    "@v",
    "@w[tid]",
    "((struct task_struct *)curtask)->pid",
    "((struct task_struct *)curtask)->mm->pgd->pgd",
    "((struct task_struct *)curtask)->real_parent->real_parent->tgid",
    "sizeof(struct task_struct)",
];

const BINARY: &[&str] = &[
    "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "&&",
    "||",
];

const TYPES: &[&str] = &[
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
];

/// What nearly is a script.
const MISTAKES: &[&str] = &[
    "{",
    "}",
    ";",
    "(",
    "@v[",
    "\"",
    "while (1) { }",
    "$a = comm;",
    "@v = count();",
    "@w = 1;",
    "retval",
    "args.nothing",
    "printf(\"%s\", 1, 2);",
    "&&",
    "/",
    "->",
    "skip();",
    "*0 = 1;",
    "reg(\"rax\") = 1;",
    "\u{fc}",
    "9999999999999999999999",
];

/// A writer of scripts.
pub struct Writer<'r> {
    random: &'r mut Random,
    /// Functions, or globs of them.
    functions: &'r [&'static str],
    /// What is still allowed: bounds depth and length.
    fuel: u32,
}

impl<'r> Writer<'r> {
    /// One that draws from `random`, with probes in these functions.
    pub fn new(random: &'r mut Random, functions: &'r [&'static str]) -> Writer<'r> {
        Writer {
            random,
            functions,
            fuel: 60,
        }
    }

    /// A script.
    pub fn script(&mut self) -> String {
        let mut text = String::new();
        if self.one_in(4) {
            text += "BEGIN { printf(\"begin %d\\n\", pid); @v = 3; }\n";
        }
        for _ in 0..=self.random.below(4) {
            let clause = self.clause();
            text += &clause;
        }
        if self.one_in(4) {
            text += match self.random.below(4) {
                0 => "interval:ms:50 { print(@n, 3); clear(@n); }\n",
                1 => "interval:ms:20 { zero(@n); @v = 7; }\n",
                2 => "interval:hz:10 { time(\"%H\\n\"); print(@h); }\n",
                _ => "interval:ms:100 { exit(); }\n",
            };
        }
        if self.one_in(3) {
            text += "END { print(@n, 2); clear(@n); printf(\"end\\n\"); }\n";
        }
        // The maps of fixed names have one kind each wherever they are.
        text += "END { @n[\"\", 0] = count(); @h = hist(1); @v = 1; @w[1] = 2; }\n";
        if self.one_in(8) {
            self.spoil(&mut text);
        }
        text
    }

    fn clause(&mut self) -> String {
        let mut probes = Vec::new();
        for _ in 0..=self.random.below(3) {
            probes.push(self.probe());
        }
        let filter = match self.random.below(3) {
            0 => format!(" /{}/", self.number(2)),
            _ => String::new(),
        };
        let mut body = String::from("$a = 1; $b = (int64)pid; ");
        for _ in 0..=self.random.below(5) {
            body += &self.statement(2);
        }
        format!("{}{filter} {{ {body}}}\n", probes.join(", "))
    }

    fn probe(&mut self) -> String {
        let f = self.pick(self.functions);
        let n = self.random.below(3);
        match self.random.below(10) {
            0..4 => format!("entry:{f}"),
            4 => format!("exit:{f}"),
            5 => format!("block:{f}/{n}"),
            6 => format!("block:{f}/*"),
            7 => format!("edge:{f}/{n}->{}", n + 1),
            8 => format!("call:{f}->*"),
            _ => format!(
                "insn:{f}+{}",
                self.pick(&["0x0", "0x0", "0x5", "0x9", "0x10"])
            ),
        }
    }

    fn number(&mut self, depth: u32) -> String {
        if depth == 0 || self.fuel == 0 || self.one_in(4) {
            return self.pick(NUMBERS).to_string();
        }
        self.fuel -= 1;
        match self.random.below(9) {
            0..4 => {
                let (a, b) = (self.number(depth - 1), self.number(depth - 1));
                format!("({a} {} {b})", self.pick(BINARY))
            }
            4 => {
                let (a, b) = (self.number(depth - 1), self.number(depth - 1));
                format!("({} ? {a} : {b})", self.number(depth - 1))
            }
            5 => format!(
                "{}({})",
                self.pick(&["-", "~", "!"]),
                self.number(depth - 1)
            ),
            6 => format!("({})({})", self.pick(TYPES), self.number(depth - 1)),
            7 => format!("*({} *)({})", self.pick(TYPES), self.address()),
            _ => format!("(comm == \"{}\")", self.pick(&["sh", "kerninst-guest", ""])),
        }
    }

    fn address(&mut self) -> String {
        let base = self.pick(ADDRESSES);
        match self.random.below(4) {
            0 => format!("{base} + {}", self.random.below(4096)),
            1 => format!("({})", self.number(1)),
            _ => base.to_string(),
        }
    }

    fn text(&mut self) -> String {
        let len = 1 + self.random.below(64);
        match self.random.below(7) {
            0 => "comm".into(),
            1 => "func".into(),
            2 => "probe".into(),
            3 => format!("str({}, {len})", self.address()),
            4 => format!("str(uptr({}), {len})", self.address()),
            5 => format!("kstack({})", 1 + self.random.below(16)),
            _ => format!("ustack({})", 1 + self.random.below(16)),
        }
    }

    fn statement(&mut self, depth: u32) -> String {
        self.fuel = self.fuel.saturating_sub(1);
        if depth > 0 && self.fuel > 0 && self.one_in(4) {
            let inner = self.statement(depth - 1);
            let n = 1 + self.random.below(8);
            return match self.random.below(5) {
                0 => format!("if ({}) {{ {inner}}} ", self.number(2)),
                1 => format!(
                    "if ({}) {{ {inner}}} else {{ {}}} ",
                    self.number(1),
                    self.statement(depth - 1)
                ),
                2 => format!("unroll ({n}) {{ {inner}}} "),
                3 => format!("for ($i : 0..{n}) {{ {inner}if ($i == 3) {{ continue; }} }} "),
                _ => format!(
                    "while ($a < {}) limit {n} {{ $a += 1; {inner}}} ",
                    self.number(1)
                ),
            };
        }
        match self.random.below(14) {
            0 => format!("@n[comm, {}] = count(); ", self.number(2)),
            1 => format!("@h = hist({}); ", self.number(2)),
            2 => format!("@s[{}] = sum({}); ", self.text(), self.number(2)),
            3 => format!("@k[{}] = count(); ", self.pick(&["kstack", "kstack(6)"])),
            4 => format!("@m[cpu] = {}({}); ", self.pick(&["max"]), self.number(2)),
            5 => format!("@w[tid] = {}; ", self.number(2)),
            6 => "delete(@w[tid]); ".into(),
            7 => format!("@v = {}; ", self.number(2)),
            8 => format!("$b = (int64)({}); ", self.number(3)),
            9 => format!(
                "printf(\"%d %s\\n\", {}, {}); ",
                self.number(2),
                self.pick(&["comm", "func", "probe"])
            ),
            10 => format!("printf(\"%s\", {}); ", self.text()),
            11 => format!(
                "printf(\"%r\\n\", buf({}, {})); ",
                self.address(),
                1 + self.random.below(64)
            ),
            12 => format!("@l = lhist({}, 0, 100, 10); ", self.number(2)),
            _ => format!("@a = avg({}); ", self.number(2)),
        }
    }

    /// Cuts something out, or puts something in.
    fn spoil(&mut self, text: &mut String) {
        let at = self.random.below(text.len() as u64) as usize;
        let Some((before, after)) = text.split_at_checked(at) else {
            return;
        };
        *text = match self.random.below(2) {
            0 => format!("{before}{}{after}", self.pick(MISTAKES)),
            _ => {
                let cut = self.random.below(6) as usize;
                format!("{before}{}", after.get(cut..).unwrap_or_default())
            }
        };
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        let n = self.random.below(list.len() as u64) as usize;
        list.get(n).copied().unwrap_or("")
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch scripts that a seed does not bring back, and a grammar that never ends.
    #[test]
    fn a_seed_gives_its_script() {
        for seed in 0..500 {
            let script = |seed| Writer::new(&mut Random::new(seed), HOT).script();
            let text = script(seed);
            assert_eq!(text, script(seed));
            assert!(text.len() < 20_000, "{text}");
        }
    }
}
