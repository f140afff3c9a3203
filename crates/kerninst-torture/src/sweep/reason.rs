//! Reasons without addresses, to be counted.

use kerninst::WhyNoVersion;
use kerninst_patch::{ManagedSite, NoSpot, NoVersion, Refusal};

/// Why a point is refused.
pub fn of(why: &Refusal) -> String {
    match why {
        Refusal::Fentry { .. } | Refusal::Spot(NoSpot::Fentry) => "the fentry site".into(),
        Refusal::OffLimits(o) => o.to_string(),
        Refusal::Unsafe(odd) | Refusal::Spot(NoSpot::Unsafe(odd)) => odd.to_string(),
        Refusal::ManagedSite(ManagedSite::JumpLabel) => "a static key's site, by a splice".into(),
        Refusal::ManagedSite(ManagedSite::StaticCall) => "a static call's site, by a splice".into(),
        Refusal::Incomplete(_) => "control flow not fully known".into(),
        Refusal::Unrelocatable(why) => format!("cannot be moved, by a splice: {why}"),
        Refusal::Taken { .. } => "the bytes belong to another splice".into(),
        Refusal::NoFunction { .. } => "no function".into(),
        Refusal::NotAnInstruction { .. } => "inside an instruction".into(),
        Refusal::Unreached { .. } => "control never reaches it".into(),
        other => other.to_string(),
    }
}

/// Why a function has no version.
pub fn of_version(why: &WhyNoVersion) -> String {
    match why {
        WhyNoVersion::Owner(_) => "somebody else's probe".into(),
        WhyNoVersion::Cannot(NoVersion::Incomplete(_)) => "control flow not fully known".into(),
        WhyNoVersion::Cannot(NoVersion::Unrelocatable { why, .. }) => {
            format!("an instruction cannot be moved: {why}")
        }
        WhyNoVersion::Cannot(NoVersion::Taken { .. }) => {
            "the bytes at its entry belong to another splice".into()
        }
        WhyNoVersion::Cannot(NoVersion::Key { .. }) => "a static key that cannot be read".into(),
        WhyNoVersion::Cannot(other) => other.to_string(),
    }
}
