use super::table::Table;
use super::*;

fn args() -> Args {
    Args {
        kernel: "6.12".into(),
        seed: 1,
        batch: 2,
        functions: None,
        means: "auto".into(),
        seconds: 1,
        batches: None,
        fresh: false,
        no_search: false,
        table: false,
        json: false,
    }
}

fn batch(n: u64, violations: &[&str]) -> Value {
    json!({"sweep": "batch", "batch": n, "functions": 2, "points": 10, "armed": 9, "tactics": {"version": 9},
           "refused": {"the fentry site": 1}, "violation_count": violations.len(), "violations": violations})
}

/// Would catch a sum that leaves a batch out, and a violation or crash that goes unseen.
#[test]
fn the_table_adds_up_and_tells_what_is_wrong() {
    let good = Table::of("r", &args(), &[batch(0, &[]), batch(1, &[])]);
    assert!(good.is_good());
    let sums = good.json();
    assert_eq!(
        (&sums["points"], &sums["tactics"]["version"]),
        (&json!(20), &json!(18))
    );
    assert!(good.to_string().contains("| version | 18 | 90.000 % |"));
    assert!(!Table::of("r", &args(), &[batch(0, &["a, b: 1, then 2"])]).is_good());
    let crash = json!({"sweep": "crash", "batch": 1, "why": "oops", "function": "f"});
    let bad = Table::of("r", &args(), &[batch(0, &[]), crash]);
    assert!(!bad.is_good());
    assert!(bad.to_string().contains("batch 1: \"oops\", by \"f\""));
    let left =
        json!({"sweep": "end", "batches": 2, "functions": 4, "left": "kerninst is still loaded"});
    assert!(!Table::of("r", &args(), &[left]).is_good());
}
