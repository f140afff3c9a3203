//! Against the types of real kernels: `KERNINST_TEST_KERNELS` names a directory that is searched for `vmlinuz*` (`cargo xtask test`
//! sets it).

use kerninst_lang::{Options, check_all, parse};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const SCRIPTS: [&str; 6] = [
    "entry:vfs_read /args.count > 4096/ { @[comm, args.file->f_flags & 3] = hist(args.count); } exit:vfs_read { @r = sum(retval); }",
    "entry:tcp_queue_rcv { @received = hist(args.skb->len); @port = args.sk->__sk_common.skc_dport; @bits = args.skb->ip_summed; }",
    "entry:do_filp_open { printf(\"%s %s\", comm, str(args.pathname->name)); } exit:do_filp_open { @[(int64)retval] = count(); }",
    "entry:commit_creds { $t = curtask; printf(\"%s: %u becomes %u from %s%s\", $t->comm, $t->real_cred->euid.val, args.new->euid.val, caller, kstack(5)); }",
    "insn:tcp_recvmsg+0 { $sk = (struct sock *)reg(\"rdi\"); if ($sk->__sk_common.skc_state == TCP_ESTABLISHED) { @[$sk->sk_rcvbuf, sizeof(struct sock)] = count(); } }",
    "entry:vfs_write { $i = args.file->f_inode; @[$i->i_sb->s_id, $i->i_ino, (struct file **)arg1 == 0] = sum(args.count); @p = (pid_t)arg0; @q = (char **)arg1; }",
];

fn kernels(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir)
        .expect("a readable directory")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            kernels(&path, found);
        } else if path
            .file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz"))
        {
            found.push(path);
        }
    }
}

/// Would catch a member, argument or constant of a real kernel that the checker does not find; also in the shipped tools.
#[test]
fn scripts_on_real_kernels() {
    let Some(dir) = std::env::var_os("KERNINST_TEST_KERNELS") else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KERNINST_TEST_KERNELS names no directory with vmlinuz files"
        );
        return;
    };
    let mut scripts: Vec<(String, String)> = Vec::new();
    for script in SCRIPTS {
        scripts.push(("-e".into(), script.into()));
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    for tool in std::fs::read_dir(tools).into_iter().flatten().flatten() {
        if tool.path().extension().is_some_and(|e| e == "ki") {
            let source = std::fs::read_to_string(tool.path()).expect("a readable tool");
            scripts.push((tool.path().display().to_string(), source));
        }
    }
    let mut found = Vec::new();
    kernels(Path::new(&dir), &mut found);
    assert!(!found.is_empty(), "KERNINST_TEST_KERNELS has no vmlinuz");
    for path in found {
        let kernel = kerninst_kernel::Kernel::from_file(&path).expect("a kernel");
        let btf = kernel.btf().expect("BTF");
        for (name, source) in &scripts {
            let script =
                parse(source).unwrap_or_else(|d| panic!("{}", d[0].render(source, name, false)));
            let begun = std::time::Instant::now();
            let (checked, diagnostics) = check_all(&script, btf, &Options::default());
            println!("{}: {name}: {:?}", path.display(), begun.elapsed());
            let shown: String = diagnostics
                .iter()
                .map(|d| d.render(source, name, false))
                .collect();
            println!("{shown}");
            let checked = checked.unwrap_or_else(|| panic!("{}: {shown}", path.display()));
            println!("{checked}");
        }
    }
}
