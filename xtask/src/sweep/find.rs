//! Which function of a batch breaks the guest.

use super::{Args, Job, guest};
use crate::programs::Programs;
use crate::say;
use kerninst_lab::KernelImage;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The longest that a part of a batch may take.
const PART: Duration = Duration::from_secs(30);

/// Arms halves of halves of the batch with these functions, which made the guest crash or (`hung`) not end. Gives a name, or in a sentence why there is none.
pub fn culprit(
    args: &Args,
    image: &KernelImage,
    programs: &Programs,
    batch: usize,
    hung: bool,
    time: Duration,
    ids: &[String],
) -> Value {
    let until = Instant::now() + time;
    let (mut first, mut end) = (0, ids.len());
    while end - first > 1 {
        let middle = first + (end - first) / 2;
        let mut found = None;
        for (a, b) in [(first, middle), (middle, end)] {
            if Instant::now() > until {
                return json!({"not_found": "no time left", "between": ids.get(first..end)});
            }
            let job = Job {
                from: batch,
                batches: Some(1),
                slice: Some((a, b)),
                time: PART,
            };
            match guest(args, image, programs, &job, &mut |_| Ok(())) {
                // A part that is only slow, on a busy machine, is not one that crashes.
                Ok(outcome) if outcome.is_success() || outcome.timed_out != hung => {}
                Ok(_) => {
                    found = Some((a, b));
                    break;
                }
                Err(e) => return json!({"not_found": e}),
            }
        }
        let Some(part) = found else {
            return json!({"not_found": "no half of it breaks it alone", "between": ids.get(first..end)});
        };
        (first, end) = part;
        say(&format!(
            "batch {batch}: it is among {} functions",
            end - first
        ));
    }
    json!(ids.get(first))
}
