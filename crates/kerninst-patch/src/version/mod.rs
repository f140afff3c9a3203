//! Instrumented versions: a whole function emitted anew, with snippets inline at any of its [`Spot`]s.
//!
//! One splice leads to it, at the first instruction after the fentry site, so that ftrace, kprobes at the entry, BPF
//! and livepatch go on working. The body makes real calls (their return addresses lie in it), carries its own
//! exception, bug, jump label, static call and unwind entries, and leaves for other functions as the original does.
//! Tasks that are in the original body stay there until they leave it.

mod body;
mod entry;
mod refusal;

use std::collections::BTreeMap;

use kerninst_analysis::Function;
use kerninst_snippet::Snippet;

use crate::facts::{Facts, Kept};
use crate::{Boards, Planner, Request, Splice, Spot};

pub use refusal::{NoSpot, NoVersion};

/// A version of a function, ready for a patch module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its way in: a splice whose patch is the whole body. Its points are all spots that were placed; one in a loop
    /// that starts at the entry may be there twice: its executions are the sum. Its overhead is once a call.
    pub splice: Splice,
    /// Offset of each block in the code, by block number.
    pub blocks: Vec<u32>,
}

/// What runs at which spot.
pub(crate) type Wanted = BTreeMap<Spot, Vec<Snippet>>;

impl Planner<'_, '_> {
    /// A version of `function` with `requests` inline. `order` is the order of its blocks (a permutation of all of
    /// them); none: by address. What the entry splice overwrites is claimed in `boards`.
    ///
    /// Spots that no code can run at are returned apart; the others are all placed.
    ///
    /// # Errors
    /// [`NoVersion`]: the function cannot have a version at all.
    pub fn version(
        &self,
        function: &Function,
        requests: &[Request],
        order: Option<&[u32]>,
        boards: &mut Boards,
    ) -> Result<(Version, Vec<(Spot, NoSpot)>), NoVersion> {
        let mut facts = self.version_facts(function);
        refusal::check(&facts)?;
        let order = blocks_in(function, order)?;
        let mut wanted = Wanted::new();
        let mut refused = Vec::new();
        for Request { at, snippets } in requests {
            match refusal::check_spot(&facts, *at) {
                Ok(()) => wanted.entry(*at).or_default().extend_from_slice(snippets),
                Err(why) => refused.push((*at, why)),
            }
        }
        facts.kept = Kept::of(wanted.values().flatten());
        let way_in = self.entry_site(&facts, boards)?;
        let features = self.options().features;
        match body::emit(&facts, &order, &wanted, &way_in, features) {
            Ok(body) => Ok((self.finish(&facts, way_in, body), refused)),
            Err(why) => {
                way_in.chosen.give_back(boards);
                Err(why)
            }
        }
    }

    /// Whether [`Planner::version`] would refuse the function as a whole, but for its entry.
    ///
    /// # Errors
    /// The reason.
    pub fn can_have_version(&self, function: &Function) -> Result<(), NoVersion> {
        refusal::check(&self.version_facts(function))
    }

    fn version_facts<'f>(&'f self, function: &'f Function) -> Facts<'f> {
        let entry = function.index_at(function.entry()).unwrap_or(0);
        Facts::for_version(self.kernel(), function, entry..entry + entry::REACH)
    }

    fn finish(&self, facts: &Facts, way_in: entry::WayIn, body: body::Body) -> Version {
        let c = way_in.chosen;
        let bytes = usize::try_from(c.site.end.saturating_sub(c.site.start)).unwrap_or(0);
        let old = self.kernel().bytes(c.site.start, bytes);
        let splice = Splice {
            name: facts.function.name.clone(),
            site: c.site.start,
            tactic: c.tactic,
            old: old.map(<[u8]>::to_vec).unwrap_or_default(),
            boundaries: crate::emit::boundaries(facts, &c),
            patch: body.code,
            board: c.board,
            points: body.placed,
            displaced: function_len(facts.function),
            overhead: c.tactic.jumps_in(),
        };
        Version {
            splice,
            blocks: body.blocks,
        }
    }
}

fn function_len(function: &Function) -> u32 {
    u32::try_from(function.insns.len()).unwrap_or(u32::MAX)
}

/// `order` checked, or the order of the addresses.
fn blocks_in(function: &Function, order: Option<&[u32]>) -> Result<Vec<u32>, NoVersion> {
    let count = function.blocks.len();
    let Some(order) = order else {
        return Ok((0..count as u32).collect());
    };
    let mut seen = vec![false; count];
    for b in order {
        match seen.get_mut(*b as usize) {
            Some(s) if !*s => *s = true,
            _ => return Err(NoVersion::Order),
        }
    }
    if order.len() == count {
        Ok(order.to_vec())
    } else {
        Err(NoVersion::Order)
    }
}
