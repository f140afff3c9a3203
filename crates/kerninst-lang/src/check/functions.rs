//! Functions of the language: how each is called; and what bpftrace has and kerninst has not.

/// A function's name, how it is called, and how many arguments it takes.
pub(super) struct Signature {
    pub name: &'static str,
    pub usage: &'static str,
    pub least: usize,
    pub most: usize,
}

const fn signature(
    name: &'static str,
    usage: &'static str,
    least: usize,
    most: usize,
) -> Signature {
    Signature {
        name,
        usage,
        least,
        most,
    }
}

/// Functions that have a value.
pub(super) const VALUES: [Signature; 8] = [
    signature("str", "str(p), str(p, 64)", 1, 2),
    signature("buf", "buf(p, 16)", 2, 2),
    signature("kstack", "kstack, kstack(8)", 0, 1),
    signature("ustack", "ustack, ustack(8)", 0, 1),
    signature("reg", "reg(\"rax\")", 1, 1),
    signature("ksym", "ksym(address)", 1, 1),
    signature("uptr", "uptr(p)", 1, 1),
    signature("kptr", "kptr(p)", 1, 1),
];

/// Functions that do something.
pub(super) const ACTIONS: [Signature; 9] = [
    signature("printf", "printf(\"%d\\n\", x)", 1, 64),
    signature(
        "print",
        "print(x), print(@map), print(@map, top), print(@map, top, div)",
        1,
        3,
    ),
    signature("clear", "clear(@map)", 1, 1),
    signature("zero", "zero(@map)", 1, 1),
    signature("delete", "delete(@map[key])", 1, 64),
    signature("time", "time(\"%H:%M:%S\\n\")", 0, 1),
    signature("cat", "cat(\"/proc/loadavg\")", 1, 1),
    signature("exit", "exit()", 0, 0),
    signature("skip", "skip()", 0, 0),
];

/// Functions whose result goes to a map.
pub(super) const TO_MAPS: [Signature; 8] = [
    signature("count", "@ = count()", 0, 0),
    signature("sum", "@ = sum(x)", 1, 1),
    signature("avg", "@ = avg(x)", 1, 1),
    signature("min", "@ = min(x)", 1, 1),
    signature("max", "@ = max(x)", 1, 1),
    signature("stats", "@ = stats(x)", 1, 1),
    signature("hist", "@ = hist(x)", 1, 1),
    signature("lhist", "@ = lhist(x, min, max, step)", 4, 4),
];

/// All words that stand for something alone.
pub(super) const NAMES: [&str; 25] = [
    "pid", "tid", "cpu", "comm", "nsecs", "elapsed", "curtask", "func", "probe", "ip", "arg0",
    "arg1", "arg2", "arg3", "arg4", "arg5", "args", "retval", "callee", "caller", "kstack",
    "ustack", "true", "false", "NULL",
];

/// Whether it is the name of a function that has a value or does something.
pub(super) fn is_function(name: &str) -> bool {
    VALUES.iter().chain(&ACTIONS).any(|s| s.name == name)
}

/// Names of all functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let all = VALUES.iter().chain(&ACTIONS).chain(&TO_MAPS);
    all.map(|s| s.name)
}

/// bpftrace's words without a counterpart here.
pub(super) const FOREIGN_NAMES: [(&str, &str); 12] = [
    (
        "uid",
        "`((struct task_struct *)curtask)->cred->uid.val` is the user's number",
    ),
    (
        "gid",
        "`((struct task_struct *)curtask)->cred->gid.val` is the group's number",
    ),
    (
        "username",
        "`((struct task_struct *)curtask)->cred->uid.val` is the user's number",
    ),
    ("cgroup", "cgroups are found from `curtask`"),
    ("rand", "`nsecs` differs from visit to visit"),
    ("ctx", "registers are read by name: `reg(\"rdi\")`"),
    (
        "sarg0",
        "what is on the stack is read through `reg(\"rsp\")`: `*(uint64 *)(reg(\"rsp\") + 8)`",
    ),
    (
        "sarg1",
        "what is on the stack is read through `reg(\"rsp\")`: `*(uint64 *)(reg(\"rsp\") + 8)`",
    ),
    ("jiffies", "`nsecs` tells the time"),
    ("ncpus", "`cpu` is the number of this one"),
    ("numaid", "`cpu` is the number of this CPU"),
    ("stack", "there are `kstack` and `ustack`"),
];

/// bpftrace's functions without a counterpart here.
pub(super) const FOREIGN: [(&str, &str); 24] = [
    (
        "system",
        "kerninst runs no commands: let the output go to a program that does",
    ),
    ("join", "print the parts: `str(*p)`"),
    ("usym", "`ustack` has the addresses of the program"),
    ("uaddr", "kerninst is about the kernel"),
    ("kaddr", "`kerninst list NAME` tells a symbol's address"),
    ("ntop", "print the bytes: `%d.%d.%d.%d`"),
    ("macaddr", "print the bytes: `printf(\"%r\", buf(p, 6))`"),
    (
        "strftime",
        "`time(\"%H:%M:%S\\n\")` prints the time; `nsecs` is a number",
    ),
    (
        "strncmp",
        "texts are compared with `==`: `str(p, 5) == \"abcd\"` compares the first four characters",
    ),
    ("strcontains", "texts are compared with `==` and `!=`"),
    ("strlen", "texts are compared with `==` and `!=`"),
    ("strerror", "print the number: `%d`"),
    ("signal", "a task cannot be signalled from a probe"),
    (
        "override",
        "`return VALUE` at an entry: probe skips the function (with `--unsafe`)",
    ),
    ("cgroupid", "cgroups are found from `curtask`"),
    ("cgroup_path", "cgroups are found from `curtask`"),
    (
        "path",
        "`str(p->f_path.dentry->d_name.name)` is a file's name",
    ),
    ("len", "count what goes into the map: `@n = count()`"),
    ("has_key", "what is not in a map is 0: `/@x[tid]/`"),
    (
        "percpu_kaddr",
        "`cpu` and casts reach per-CPU memory whose address is known",
    ),
    ("errorf", "use `printf`"),
    ("debugf", "use `printf`"),
    ("nsecs", "it is a word without brackets: `nsecs`"),
    ("unwatch", "kerninst has no watchpoints"),
];
