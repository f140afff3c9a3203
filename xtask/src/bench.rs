//! `cargo xtask bench`: what a count costs, in guest instructions, beside the kernel's own facilities in the same
//! guest; how fast a kernel is analysed; how long arming takes.
//!
//! Costs are deterministic: the median of 2,000 single system calls in a guest that is repeatable to the instruction,
//! less the median without any probe. Instructions say nothing of the price of a trap: an `int3` costs hundreds of cycles
//! beside the instructions of its handler.

use crate::cargo::cargo;
use crate::{Failure, programs, say, setup};
use kerninst_lab::{KernelImage, Lab, Meter};
use std::time::Duration;

/// Arguments of the benchmark.
#[derive(clap::Args)]
pub struct Args {
    /// Kernels, comma-separated
    #[arg(long, default_value = "6.12,6.1", value_delimiter = ',')]
    kernels: Vec<String>,
    /// Only the costs of one count, beside the kernel's own facilities
    #[arg(long)]
    costs: bool,
    /// Only what it costs to cover the whole kernel (takes ten minutes)
    #[arg(long, conflicts_with = "costs")]
    whole: bool,
    /// Only scripts (`kerninst run`), beside bpftrace
    #[arg(long, conflicts_with_all = ["costs", "whole"])]
    scripts: bool,
}

/// A probe of the system call, and the series of samples that measures it. `{S}` is the sampling command.
struct Case {
    what: &'static str,
    series: u8,
    script: &'static str,
}

const CASES: &[Case] = &[
    Case {
        what: "no probe",
        series: 1,
        script: "{S}",
    },
    Case {
        what: "kerninst count, entry",
        series: 2,
        script: "kerninst count entry:$F -- {S} 2>/dev/null",
    },
    Case {
        what: "kerninst count, an instruction in the middle",
        series: 3,
        script: "kerninst count insn:$MID -- {S} 2>/dev/null",
    },
    Case {
        what: "kerninst count, the return",
        series: 4,
        script: "kerninst count exit:$F -- {S} 2>/dev/null",
    },
    Case {
        what: "kerninst count, every block",
        series: 5,
        script: "kerninst count \"block:$F/*\" -- {S} 2>/dev/null",
    },
    Case {
        what: "kprobe event in the middle, int3",
        series: 6,
        script: "echo 0 > /proc/sys/debug/kprobes-optimization; echo \"p:b6 $MID\" > $T/kprobe_events; echo 1 > $T/events/kprobes/b6/enable; sleep 1; {S}; echo 0 > $T/events/kprobes/b6/enable; echo > $T/kprobe_events",
    },
    Case {
        what: "kprobe event in the middle, optimised to a jump",
        series: 7,
        script: "echo 1 > /proc/sys/debug/kprobes-optimization; echo \"p:b7 $MID\" > $T/kprobe_events; echo 1 > $T/events/kprobes/b7/enable; sleep 3; grep -c OPTIMIZED /sys/kernel/debug/kprobes/list | sed 's/^/optimized /'; {S}; echo 0 > $T/events/kprobes/b7/enable; echo > $T/kprobe_events",
    },
    Case {
        what: "kprobe event at the entry (through ftrace)",
        series: 8,
        script: "echo \"p:b8 $F\" > $T/kprobe_events; echo 1 > $T/events/kprobes/b8/enable; sleep 1; {S}; echo 0 > $T/events/kprobes/b8/enable; echo > $T/kprobe_events",
    },
    Case {
        what: "kretprobe event",
        series: 9,
        script: "echo \"r:b9 $F\" > $T/kprobe_events; echo 1 > $T/events/kprobes/b9/enable; sleep 1; {S}; echo 0 > $T/events/kprobes/b9/enable; echo > $T/kprobe_events",
    },
    Case {
        what: "ftrace function tracer, this function only",
        series: 10,
        script: "grep -qx $F $T/available_filter_functions && echo $F > $T/set_ftrace_filter || echo $G > $T/set_ftrace_filter; echo function > $T/current_tracer; {S}; echo nop > $T/current_tracer; echo > $T/set_ftrace_filter",
    },
    Case {
        what: "BPF fentry, counting in a per-CPU map",
        series: 11,
        script: "kerninst-torture bpf fentry $G -- {S}",
    },
    Case {
        what: "BPF fentry, a program that does nothing",
        series: 12,
        script: "kerninst-torture bpf --empty fentry $G -- {S}",
    },
    Case {
        what: "BPF kprobe in the middle, counting, int3",
        series: 13,
        script: "echo 0 > /proc/sys/debug/kprobes-optimization; kerninst-torture bpf kprobe $MID -- {S}",
    },
    Case {
        what: "BPF kprobe in the middle, counting, optimised to a jump",
        series: 14,
        script: "echo 1 > /proc/sys/debug/kprobes-optimization; kerninst-torture bpf kprobe $MID -- sh -c 'sleep 3; {S}'",
    },
    Case {
        what: "BPF kprobe at the entry (through ftrace), counting",
        series: 15,
        script: "kerninst-torture bpf kprobe $F -- {S}",
    },
];

/// Runs it; prints Markdown.
pub fn run(args: &Args) -> Result<i32, Failure> {
    setup::run()?;
    let programs = programs::build()?;
    println!("# Measurements\n");
    println!(
        "Made by `cargo xtask bench`. Guest instructions are exact and repeatable; times are of the machine that ran it.\n"
    );
    for name in &args.kernels {
        let image = Lab::named(name)
            .map_err(|e| e.to_string())?
            .kernel()
            .clone();
        println!("## Linux {}\n", image.release);
        if args.whole {
            crate::bench_cover::run(&image, &programs)?;
            continue;
        }
        if args.scripts {
            crate::bench_scripts::run(&image, &programs)?;
            continue;
        }
        costs(&image, &programs)?;
        if args.costs {
            continue;
        }
        arming(&image, &programs)?;
        whole_kernel(&image)?;
    }
    Ok(0)
}

fn costs(image: &KernelImage, programs: &programs::Programs) -> Result<(), Failure> {
    let mut script = String::from(
        "T=/sys/kernel/tracing; echo 4096 > $T/buffer_size_kb
         F=__x64_sys_getppid; G=__do_sys_getppid
         kerninst list --points --json $F > /tmp/points
         for MID in $(grep '\"tactic\":\"in-place\"' /tmp/points | grep -o '[a-z_0-9]*getppid+0x[0-9a-f]*'); do
             echo \"p:try $MID\" > $T/kprobe_events && echo 1 > $T/events/kprobes/try/enable && sleep 3
             grep -q OPTIMIZED /sys/kernel/debug/kprobes/list && found=$MID
             echo 0 > $T/events/kprobes/try/enable; echo > $T/kprobe_events
             [ -n \"$found\" ] && break
         done
         echo middle $MID
         sleep 5; kerninst-guest getppid 100 >/dev/null\n",
    );
    for case in CASES {
        let sample = format!(
            "kerninst-guest --samples {} getppid 2000 >/dev/null",
            case.series
        );
        script.push_str(&case.script.replace("{S}", &sample));
        script.push('\n');
    }
    script.push_str("exit 0\n");
    let outcome = Lab::new(image.clone())
        .files(programs.guest_files())
        .deterministic(true)
        .seed(42)
        .meter(Meter::new(&programs.meter))
        .timeout(Duration::from_secs(600))
        .run(&script)
        .map_err(|e| e.to_string())?;
    if !outcome.is_success() {
        return Err(outcome.report());
    }
    let report = outcome.meter.as_ref().ok_or("the meter wrote nothing")?;
    let p50 = |series: u8| {
        report
            .samples
            .iter()
            .find(|s| s.id == series)
            .map(|s| s.kernel.p50)
    };
    let base = p50(1).ok_or("the system call alone was not measured")?;
    for line in outcome
        .stdout
        .lines()
        .filter(|l| l.starts_with("middle") || l.starts_with("optimized"))
    {
        say(line);
    }
    println!(
        "Guest instructions of one getppid system call ({base} without a probe), and what the probe adds:\n"
    );
    println!("| Probe | Added |\n|---|---|");
    for case in &CASES[1..] {
        match p50(case.series) {
            Some(n) => println!("| {} | {} |", case.what, n as i64 - base as i64),
            None => println!("| {} | not offered by this kernel |", case.what),
        }
    }
    println!();
    Ok(())
}

fn arming(image: &KernelImage, programs: &programs::Programs) -> Result<(), Failure> {
    let outcome = Lab::new(image.clone())
        .files(programs.guest_files())
        .deterministic(true)
        .seed(42)
        .timeout(Duration::from_secs(600))
        .run("sleep 5; kerninst-torture timing")
        .map_err(|e| e.to_string())?;
    if !outcome.is_success() {
        return Err(format!("{}{}", outcome.stderr, outcome.report()));
    }
    println!("Millions of guest instructions (in the deterministic lab one takes 1 ns):\n");
    println!("| Step | Million |\n|---|---|");
    for line in outcome.stdout.lines() {
        if let Ok(v) = serde_json::from_str::<serde_json::Value>(line) {
            println!(
                "| {} | {:.1} |",
                v["step"].as_str().unwrap_or("?"),
                v["ms"].as_f64().unwrap_or(0.0)
            );
        }
    }
    println!();
    Ok(())
}

/// The ladder and the analysis of the whole kernel, by the crates' own examples on the file.
fn whole_kernel(image: &KernelImage) -> Result<(), Failure> {
    for (package, example) in [("kerninst-analysis", "stats"), ("kerninst-patch", "ladder")] {
        let output = cargo(&[
            "run",
            "--quiet",
            "--release",
            "-p",
            package,
            "--example",
            example,
            "--",
        ])
        .arg(&image.image)
        .args(if example == "ladder" {
            &["--booted"][..]
        } else {
            &[]
        })
        .output()
        .map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!(
                "example {example} failed: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        println!("`cargo run --release -p {package} --example {example} -- vmlinuz`:\n\n```");
        // The file's place is of no interest to a reader.
        let place = format!("{}", image.image.display());
        print!(
            "{}",
            String::from_utf8_lossy(&output.stdout).replace(&place, "vmlinuz")
        );
        println!("```\n");
    }
    Ok(())
}
