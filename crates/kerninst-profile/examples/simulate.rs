//! A profile without a run: random walks through functions of a kernel file, by the chances that weights are estimated
//! from. For trying out what shows profiles: `simulate IMAGE OUTPUT CALLS FUNCTION…`.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use kerninst_analysis::Analysis;
use kerninst_kernel::Kernel;
use kerninst_profile::file::{FunctionProfile, Head, ProfileFile};
use kerninst_profile::{Flow, Node, Placement, Weights, solve};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, output, calls, functions @ ..] = args.as_slice() else {
        return Err("simulate IMAGE OUTPUT CALLS FUNCTION...".into());
    };
    let calls: u64 = calls.parse()?;
    let kernel = Kernel::from_file(Path::new(image))?;
    let analysis = Analysis::new(&kernel);
    let build_id = kernel.build_id().unwrap_or_default();
    let mut file = ProfileFile {
        head: Head {
            build_id: build_id.iter().map(|b| format!("{b:02x}")).collect(),
            release: kernel.release().map(str::to_string),
            seconds: 1.0,
            complete: true,
            runs: 1,
            what: Some("simulated".into()),
            ..Head::default()
        },
        ..ProfileFile::default()
    };
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for name in functions {
        let symbols = kernel.symbols().named(name);
        let symbol = symbols.first().ok_or_else(|| format!("no {name}"))?;
        let function = analysis.function_at(symbol.addr).ok_or("not code")?;
        let flow = Flow::new(&function);
        let weights = Weights::estimate(&function, &flow, |addr| {
            let byte = kernel.bytes(addr, 1)?.first()?;
            Some(matches!(byte, 0xeb | 0xe9))
        });
        let mut taken = vec![0u64; flow.edges().len()];
        let mut inside = Vec::new();
        let enter = flow.enter().ok_or("no entry")?;
        for call in 0..calls {
            *taken.get_mut(enter).ok_or("no entry")? += 1;
            let mut at = flow.edges().get(enter).map_or(Node::Exit, |e| e.to);
            let mut steps = 0;
            while let Node::Block(block) = at {
                steps += 1;
                // The last calls are still under way.
                if steps > 5_000 || (call + 3 > calls && steps > 4) {
                    inside.push((block, 1));
                    break;
                }
                let out: Vec<(usize, u64)> = (flow.edges().iter().enumerate())
                    .filter(|(_, e)| e.from == at)
                    .map(|(n, _)| (n, weights.of(n)))
                    .collect();
                let sum: u64 = out.iter().map(|(_, w)| *w).sum();
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let mut pick = random % sum.max(1);
                let chosen = out.iter().find(|(_, w)| {
                    let hit = pick < *w;
                    pick = pick.saturating_sub(*w);
                    hit
                });
                let (n, _) = chosen.or(out.first()).ok_or("a dead end")?;
                *taken.get_mut(*n).ok_or("no edge")? += 1;
                at = flow.edges().get(*n).map_or(Node::Exit, |e| e.to);
            }
        }
        let placement = Placement::new(&flow, &weights);
        let counts: Vec<u64> = placement
            .counters()
            .iter()
            .filter_map(|c| taken.get(c.edge as usize).copied())
            .collect();
        let profile = solve(&flow, &placement, &counts, &inside)?;
        file.add(FunctionProfile::new(&kernel, &function, &profile))?;
    }
    file.write(&mut File::create(output)?)?;
    Ok(())
}
