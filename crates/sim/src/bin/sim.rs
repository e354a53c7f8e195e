//! Replays one seed with its trace, or tries many on all cores.
//!
//! ```text
//! sim --seed N [--scenario NAME]                 one run, its trace and its hash
//! sim --seeds N [--start-seed M] [--scenario NAME]    N runs
//! sim --seconds S [--start-seed M] [--scenario NAME]  runs for S seconds
//! ```
//! With the feature `mutants` there is `--mutant NAME` besides, which puts that defect into all
//! nodes.
//!
//! Exits with 1 and prints the seed when a property is violated, with 2 when the arguments are
//! wrong.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use convoke_proto::mutant::Mutant;
use convoke_sim::scenario::Kind;
use convoke_sim::swarm::{self, Failure, Sum};
use convoke_sim::trace::Trace;
use convoke_sim::world::World;

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<u64>,
    seconds: Option<u64>,
    start_seed: Option<u64>,
    kind: Option<Kind>,
    mutant: Option<Mutant>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    infect(arguments.mutant);
    let ended = match arguments.seed {
        Some(seed) => replay(seed, arguments.kind),
        None => swarm(&arguments),
    };
    match ended {
        Ok(code) => code,
        // Whoever read it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

const USAGE: &str = "usage: sim --seed N | --seeds N | --seconds S [--start-seed M] \
    [--scenario NAME] [--mutant NAME]";

fn parse(mut texts: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(name) = texts.next() {
        let value = texts.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse().map_err(|error| format!("{name} {value}: {error}"));
        match name.as_str() {
            "--seed" => arguments.seed = Some(number()?),
            "--seeds" => arguments.seeds = Some(number()?),
            "--seconds" => arguments.seconds = Some(number()?),
            "--start-seed" => arguments.start_seed = Some(number()?),
            "--scenario" => {
                let kind = Kind::from_name(&value).ok_or_else(|| no_such_scenario(&value))?;
                arguments.kind = Some(kind);
            }
            "--mutant" => {
                let named = |mutant: &Mutant| format!("{mutant:?}") == value;
                let mutant = Mutant::ALL.into_iter().find(named);
                arguments.mutant = Some(mutant.ok_or(format!("no mutant is called {value}"))?);
            }
            _ => return Err(format!("unknown argument {name}")),
        }
    }
    let modes = [arguments.seed, arguments.seeds, arguments.seconds];
    if modes.iter().flatten().count() == 1 {
        Ok(arguments)
    } else {
        Err("give one of --seed, --seeds and --seconds".to_owned())
    }
}

/// Puts a defect into the nodes of this thread.
fn infect(mutant: Option<Mutant>) {
    #[cfg(feature = "mutants")]
    convoke_proto::mutant::set(mutant);
    #[cfg(not(feature = "mutants"))]
    assert!(mutant.is_none(), "built without the feature `mutants`");
}

fn no_such_scenario(name: &str) -> String {
    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    format!("no scenario is called {name}; there are {}", names.join(", "))
}

fn replay(seed: u64, kind: Option<Kind>) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let scenario = swarm::scenario(seed, kind);
    writeln!(out, "seed {seed}, scenario {}", scenario.kind.name())?;
    writeln!(out, "{scenario:#?}")?;
    let (result, trace) = World::new(scenario, Trace::with_lines()).run();
    writeln!(out, "{}hash {:016x}", trace.lines(), trace.hash())?;
    match result {
        Ok(report) => {
            let (calls, tasks, events) = (report.calls, report.tasks, report.events);
            writeln!(out, "{calls} calls, {tasks} tasks, {events} events")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(violation) => {
            writeln!(out, "VIOLATION {violation}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn swarm(arguments: &Arguments) -> io::Result<ExitCode> {
    let first = arguments.start_seed.unwrap_or_else(fresh_seed);
    writeln!(io::stdout(), "start seed {first}")?;
    let started = Instant::now();
    let end = arguments.seconds.map(|seconds| started + Duration::from_secs(seconds));
    let last = arguments.seeds.map_or(u64::MAX, |count| first.saturating_add(count));
    let (next, failed) = (AtomicU64::new(first), AtomicBool::new(false));
    let (sum, failure) = (Mutex::new(Sum::default()), Mutex::new(None::<Failure>));
    // A panic in a run is reported with its seed; its own message would come without.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(|| {
                let is_over = || {
                    failed.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end)
                };
                infect(arguments.mutant);
                while !is_over() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    match swarm::run(seed, arguments.kind) {
                        Ok(report) => {
                            let mut sum = sum.lock().expect("no holder panics");
                            *sum += &report;
                            if sum.runs.is_multiple_of(1000) {
                                eprintln!("{} runs in {:.1?}", sum.runs, started.elapsed());
                            }
                        }
                        Err(found) => {
                            failed.store(true, Ordering::Relaxed);
                            failure.lock().expect("no holder panics").get_or_insert(found);
                        }
                    }
                }
            });
        }
    });
    let sum = *sum.lock().expect("no holder panics");
    summarize(&sum, started.elapsed())?;
    match failure.into_inner().expect("no holder panics") {
        Some(failure) => {
            let (seed, name) = (failure.seed, failure.kind.name());
            let replay = format_args!("replay: sim --seed {seed} --scenario {name}");
            writeln!(io::stdout(), "VIOLATION {failure}\n{replay}")?;
            Ok(ExitCode::FAILURE)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn summarize(sum: &Sum, elapsed: Duration) -> io::Result<()> {
    let rate = |count: u64| count as f64 / elapsed.as_secs_f64().max(1e-9);
    writeln!(
        io::stdout(),
        "{} runs, {} calls, {} tasks, {} frames, {} events in {elapsed:.1?}: {:.0} runs/s, {:.0} events/s",
        sum.runs,
        sum.calls,
        sum.tasks,
        sum.frames,
        sum.events,
        rate(sum.runs),
        rate(sum.events),
    )
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) << 20 | u64::from(std::process::id())
}
