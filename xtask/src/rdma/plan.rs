//! Programs to run in each machine, and their order.

use std::fmt;

use clap::ValueEnum;

use super::replicated::RACES;

/// Purpose of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// Cases of the library that use verbs.
    Unit,
    /// Programs of tests: what every transport promises, and what this one does.
    Conformance,
    /// Programs of tests named `fault*`: what happens when something breaks.
    Fault,
    /// Measurements with limits.
    Bench,
    /// The replicated benchmark: PBFT over the device and over TCP.
    Replicated,
}

/// Manner in which a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Mode {
    /// One processor and a clock that counts instructions: times repeat.
    Det,
    /// Two processors and the clock of the host: real races.
    Smp,
    /// Two machines on a cable, with the clock of the host: real loss.
    Pair,
}

/// A program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) kind: Kind,
    /// As its source file is called.
    pub(crate) name: String,
    /// Its tests, or runs with their arguments; none of a bench.
    pub(crate) cases: Vec<String>,
}

/// A line of the plan that a machine works off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) program: String,
    pub(crate) case: Option<String>,
    /// It is killed after this time of the machine.
    pub(crate) limit_s: u32,
}

/// Choice of what is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) kinds: Vec<Kind>,
    /// Is part of the name of everything that runs.
    pub(crate) name: String,
    /// In how many machines each bench runs, to tell what repeats from what does not.
    pub(crate) bench_rounds: usize,
}

impl Choice {
    /// The tests of a machine in this mode.
    pub(crate) fn tests(&self, mode: Mode, programs: &[Program]) -> Vec<Job> {
        let fits = |job: &Job| job.needs_pair() == (mode == Mode::Pair);
        let mut jobs: Vec<Job> = self.jobs(programs).filter(fits).collect();
        jobs.retain(|job| !matches!(job.kind, Kind::Bench | Kind::Replicated));
        jobs.sort_by_key(|job| job.kind);
        jobs
    }

    /// The benches, once.
    pub(crate) fn benches(&self, programs: &[Program]) -> Vec<Job> {
        self.jobs(programs).filter(|job| job.kind == Kind::Bench).collect()
    }

    /// Runs of the replicated benchmark in a machine of this mode: one where races are real, and
    /// all others where times repeat.
    pub(crate) fn replicated(&self, mode: Mode, programs: &[Program]) -> Vec<Job> {
        let has_races = |job: &Job| job.is_named(RACES);
        let fits = |job: &Job| match mode {
            Mode::Det => !has_races(job),
            Mode::Smp => has_races(job),
            Mode::Pair => false,
        };
        self.jobs(programs).filter(|job| job.kind == Kind::Replicated && fits(job)).collect()
    }

    /// Jobs of a host with a device: all that harm nobody else on it.
    pub(crate) fn on_host(&self, programs: &[Program]) -> Vec<Job> {
        // The mode of all tests but those that need two machines.
        let mut jobs = self.tests(Mode::Det, programs);
        jobs.retain(|job| !job.needs_machine());
        jobs.extend(self.benches(programs));
        for mode in [Mode::Det, Mode::Smp] {
            jobs.extend(self.replicated(mode, programs));
        }
        jobs
    }

    fn jobs(&self, programs: &[Program]) -> impl Iterator<Item = Job> {
        let chosen = programs.iter().filter(|program| self.kinds.contains(&program.kind));
        chosen.flat_map(Program::jobs).filter(|job| job.to_string().contains(&self.name))
    }
}

impl Program {
    fn jobs(&self) -> Vec<Job> {
        match self.kind {
            Kind::Bench => vec![Job::bench(&self.name)],
            Kind::Replicated => {
                self.cases.iter().map(|case| Job::replicated(&self.name, case)).collect()
            }
            kind => self.cases.iter().map(|case| Job::test(kind, &self.name, case)).collect(),
        }
    }
}

impl Job {
    /// A case of a program of tests.
    pub(crate) fn test(kind: Kind, program: &str, case: &str) -> Self {
        let (program, case) = (program.to_owned(), Some(case.to_owned()));
        Self { kind, program, case, limit_s: TEST_LIMIT_S }
    }

    /// A run of a bench.
    pub(crate) fn bench(program: &str) -> Self {
        let program = program.to_owned();
        Self { kind: Kind::Bench, program, case: None, limit_s: BENCH_LIMIT_S }
    }

    /// A run of the replicated benchmark: its name and its arguments.
    pub(crate) fn replicated(program: &str, case: &str) -> Self {
        let test = Self::test(Kind::Replicated, program, case);
        Self { limit_s: REPLICATED_LIMIT_S, ..test }
    }

    fn is_named(&self, name: &str) -> bool {
        self.case.as_deref().and_then(|case| case.split(' ').next()) == Some(name)
    }

    fn needs_pair(&self) -> bool {
        self.is_in("pair::")
    }

    /// True when it breaks the network, which others of a host use, too.
    fn needs_machine(&self) -> bool {
        self.needs_pair() || self.is_in("device::")
    }

    fn is_in(&self, module: &str) -> bool {
        self.kind == Kind::Fault && self.case.as_ref().is_some_and(|case| case.starts_with(module))
    }

    /// True when its name says that it breaks the rule that receivers are ready, or when it judges
    /// that itself: without credits the rule does not hold.
    pub(crate) fn expects_not_ready(&self) -> bool {
        self.kind == Kind::Replicated
            || self.case.as_deref().unwrap_or(&self.program).contains("not_ready")
    }

    /// As the suite reads it.
    pub(crate) fn line(&self) -> String {
        let kind = match self.kind {
            Kind::Bench => "bench",
            Kind::Replicated => "run",
            _ => "test",
        };
        let case = self.case.as_deref().unwrap_or_default();
        format!("{kind} {} {} {case}\n", self.program, self.limit_s)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.to_possible_value().expect("every kind has a name");
        write!(f, "{} {}", kind.get_name(), self.program)?;
        if self.kind == Kind::Replicated {
            let name = self.case.as_deref().and_then(|case| case.split(' ').next());
            return write!(f, " {}", name.unwrap_or_default());
        }
        self.case.iter().try_for_each(|case| write!(f, " {case}"))
    }
}

/// Above the minute for which both sides are saturated, on a host that is busy.
const TEST_LIMIT_S: u32 = 120;
/// In time of the machine, which on an idle host runs at a third of ours.
const BENCH_LIMIT_S: u32 = 120;
/// In time of the machine: ten times what 10^5 requests at three windows take.
const REPLICATED_LIMIT_S: u32 = 36_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn program(kind: Kind, name: &str, cases: &[&str]) -> Program {
        let cases = cases.iter().map(|&case| case.to_owned()).collect();
        Program { kind, name: name.to_owned(), cases }
    }

    fn lines(mode: Mode, kinds: &[Kind]) -> Vec<String> {
        named(mode, kinds, "")
    }

    fn programs() -> [Program; 5] {
        [
            program(Kind::Bench, "ping_pong", &[]),
            program(Kind::Bench, "stream", &[]),
            program(Kind::Fault, "fault", &["peer::dies", "pair::heals", "device::is_down"]),
            program(Kind::Unit, "lib", &["ffi::layout"]),
            program(Kind::Replicated, "pbft", &["races bench", "credits bench"]),
        ]
    }

    fn choice(kinds: &[Kind], name: &str) -> Choice {
        Choice { kinds: kinds.to_vec(), name: name.to_owned(), bench_rounds: 2 }
    }

    fn named(mode: Mode, kinds: &[Kind], name: &str) -> Vec<String> {
        let (programs, choice) = (programs(), choice(kinds, name));
        let replicated = choice.replicated(mode, &programs);
        let benches = choice.benches(&programs);
        let jobs = [choice.tests(mode, &programs), benches, replicated].concat();
        jobs.iter().map(Job::to_string).collect()
    }

    #[test]
    fn tests_run_in_the_order_of_their_kinds_and_benches_for_themselves() {
        let all = [Kind::Unit, Kind::Conformance, Kind::Fault, Kind::Bench, Kind::Replicated];
        let expected = [
            "unit lib ffi::layout",
            "fault fault peer::dies",
            "fault fault device::is_down",
            "bench ping_pong",
            "bench stream",
            "replicated pbft credits",
        ];
        assert_eq!(lines(Mode::Det, &all), expected);
        assert_eq!(lines(Mode::Smp, &all[..3]), expected[..3]);
    }

    #[test]
    fn one_run_is_where_races_are_real() {
        assert_eq!(lines(Mode::Det, &[Kind::Replicated]), ["replicated pbft credits"]);
        assert_eq!(lines(Mode::Smp, &[Kind::Replicated]), ["replicated pbft races"]);
        assert_eq!(lines(Mode::Pair, &[Kind::Replicated]), [""; 0]);
    }

    #[test]
    fn a_pair_runs_what_needs_two_machines_and_nothing_else() {
        assert_eq!(lines(Mode::Pair, &[Kind::Unit, Kind::Fault]), ["fault fault pair::heals"]);
    }

    #[test]
    fn a_name_picks_cases_and_programs() {
        let kinds = [Kind::Fault, Kind::Bench];
        assert_eq!(named(Mode::Det, &kinds, "dies"), ["fault fault peer::dies"]);
        assert_eq!(named(Mode::Det, &kinds, "stream"), ["bench stream"]);
    }

    #[test]
    fn what_breaks_the_network_needs_a_machine() {
        for (case, needs) in
            [("device::is_down", true), ("pair::heals", true), ("peer::dies", false)]
        {
            assert_eq!(Job::test(Kind::Fault, "fault", case).needs_machine(), needs, "{case}");
        }
        assert!(!Job::test(Kind::Unit, "lib", "device::parses").needs_machine());
    }

    #[test]
    fn a_host_runs_all_that_harms_nobody() {
        let all = [Kind::Unit, Kind::Conformance, Kind::Fault, Kind::Bench, Kind::Replicated];
        let jobs = |name| choice(&all, name).on_host(&programs());
        let named: Vec<String> = jobs("").iter().map(Job::to_string).collect();
        let expected = [
            "unit lib ffi::layout",
            "fault fault peer::dies",
            "bench ping_pong",
            "bench stream",
            "replicated pbft credits",
            "replicated pbft races",
        ];
        assert_eq!(named, expected);
        assert_eq!(jobs("no such case"), []);
    }

    #[test]
    fn a_job_is_a_line_of_the_plan() {
        let test = Job::test(Kind::Unit, "lib", "ffi::layout");
        assert_eq!(test.line(), "test lib 120 ffi::layout\n");
        assert_eq!(Job::bench("stream").line(), "bench stream 120 \n");
        let run = Job::replicated("pbft", "stability bench --clients 1");
        assert_eq!(run.line(), "run pbft 36000 stability bench --clients 1\n");
        assert_eq!(run.to_string(), "replicated pbft stability");
    }
}
