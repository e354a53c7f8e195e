//! Results of the suite, read line by line while it runs, and what to make of them.

use std::collections::BTreeMap;

use super::plan::{Job, Kind};

/// A line of what the suite says.
#[derive(Clone, Debug, PartialEq)]
enum Line<'a> {
    /// This job begins, at this time of the machine in seconds.
    Start(usize, f64),
    /// A line of a bench on its standard output.
    Figure(&'a str),
    /// Another line of what runs.
    Output(&'a str),
    /// A line of a file of results, by the name of that.
    File(&'a str, &'a str),
    /// This job is over.
    Done { job: usize, code: i32, at: f64, not_ready: u64 },
    /// The kernel complains.
    Kernel(&'a str),
    /// Value of a counter of the device in the end.
    Counter(&'a str, u64),
    /// The machine ends; `well` or why not.
    End(&'a str),
}

impl<'a> Line<'a> {
    /// Reads a line; `None` when it is not of the suite.
    fn parse(line: &'a str) -> Option<Self> {
        let (word, text) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = text.split_whitespace().collect();
        Some(match (word, &words[..]) {
            ("start", [job, at]) => Self::Start(job.parse().ok()?, at.parse().ok()?),
            ("done", [job, code, at, not_ready]) => Self::Done {
                job: job.parse().ok()?,
                code: code.parse().ok()?,
                at: at.parse().ok()?,
                // Fewer than before: the device was made anew, and has counted none since.
                not_ready: not_ready.parse::<i64>().ok()?.try_into().unwrap_or(0),
            },
            ("counter", [name, value]) => Self::Counter(name, value.parse().ok()?),
            ("figure", _) => Self::Figure(text),
            ("output", _) => Self::Output(text),
            ("file", [name, ..]) => {
                let line = text.split_once(' ').map_or("", |(_, line)| line);
                Self::File(name, line)
            }
            ("kernel", _) => Self::Kernel(text),
            ("end", _) => Self::End(text),
            _ => return None,
        })
    }
}

/// Results of the jobs of one machine so far.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    /// The mode, with the role behind it in a pair.
    machine: String,
    jobs: Vec<Job>,
    current: Option<Current>,
    done: usize,
    has_ended: bool,
    /// Failures, a sentence each.
    failures: Vec<String>,
    /// Of each bench in each round: its lines.
    figures: Vec<Figures>,
    counters: BTreeMap<String, u64>,
    /// Files of results, by name.
    files: BTreeMap<String, String>,
}

/// Figures that one run of a bench printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) program: String,
    pub(crate) lines: Vec<String>,
}

#[derive(Clone, Debug)]
struct Current {
    began: f64,
    output: Vec<String>,
    figures: Vec<String>,
}

impl Results {
    /// Of a machine that was told to do these jobs.
    pub(crate) fn new(machine: &str, jobs: &[Job]) -> Self {
        Self {
            machine: machine.to_owned(),
            jobs: jobs.to_vec(),
            current: None,
            done: 0,
            has_ended: false,
            failures: Vec::new(),
            figures: Vec::new(),
            counters: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Takes a line of the suite; hands back what a user should read now.
    pub(crate) fn handle_line(&mut self, line: &str) -> Vec<String> {
        match Line::parse(line.trim_end()) {
            Some(Line::Start(_, began)) => {
                self.current = Some(Current { began, output: Vec::new(), figures: Vec::new() });
            }
            Some(Line::Figure(text)) => {
                self.current.iter_mut().for_each(|current| current.figures.push(text.to_owned()))
            }
            Some(Line::Output(text)) => {
                self.current.iter_mut().for_each(|current| current.output.push(text.to_owned()))
            }
            Some(Line::File(name, text)) => {
                let file = self.files.entry(name.to_owned()).or_default();
                *file = std::mem::take(file) + text + "\n";
            }
            Some(Line::Done { job, code, at, not_ready }) => {
                return self.on_done(job, code, at, not_ready);
            }
            Some(Line::Counter(name, value)) => drop(self.counters.insert(name.to_owned(), value)),
            Some(Line::Kernel(text)) => {
                self.failures.push(format!("{}: kernel: {text}", self.machine))
            }
            Some(Line::End("well")) => self.has_ended = true,
            Some(Line::End(reason)) => self.failures.push(format!("{}: {reason}", self.machine)),
            None => return vec![format!("{}: {line}", self.machine)],
        }
        Vec::new()
    }

    /// Takes note that the machine did not end as it should.
    pub(crate) fn handle_death(&mut self, reason: &str) {
        self.failures.push(format!("{}: {reason}", self.machine));
    }

    /// Failures, now that the machine is gone; empty when all went well.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = self.failures.clone();
        if !self.has_ended {
            let during =
                self.jobs.get(self.done).map_or_else(|| "the end".to_owned(), Job::to_string);
            failures.push(format!("{}: the machine stopped during {during}", self.machine));
        } else if self.done < self.jobs.len() {
            failures.push(format!("{}: {} of {} ran", self.machine, self.done, self.jobs.len()));
        }
        failures
    }

    /// Figures that the benches printed.
    pub(crate) fn figures(&self) -> &[Figures] {
        &self.figures
    }

    /// Files of results, by name.
    pub(crate) fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// Number of jobs that are done, and what the device counted about receivers that were not
    /// ready.
    pub(crate) fn summary(&self) -> String {
        let counted = |name: &str| self.counters.get(name).copied().unwrap_or_default();
        format!(
            "{}: {} of {} done; receiver not ready: {} sent, {} received; {} sent again",
            self.machine,
            self.done,
            self.jobs.len(),
            counted("send_rnr_err"),
            counted("rcvd_rnr_err"),
            counted("completer_retry_err")
        )
    }

    fn on_done(&mut self, number: usize, code: i32, at: f64, not_ready: u64) -> Vec<String> {
        let (Some(job), Some(current)) = (self.jobs.get(number), self.current.take()) else {
            return vec![format!("{}: job {number} was not asked for", self.machine)];
        };
        self.done += 1;
        let failure = complaint(job, code, not_ready, current.figures.is_empty());
        let word = if failure.is_some() { "FAILED" } else { "passed" };
        let seconds = at - current.began;
        let mut said = vec![format!("{:6} {word} {seconds:>7.2} s  {job}", self.machine)];
        let is_bench = job.kind == Kind::Bench;
        let shown = |line: &String| format!("       | {line}");
        if is_bench || job.kind == Kind::Replicated || failure.is_some() {
            said.extend(current.output.iter().map(shown));
        }
        if let Some(failure) = failure {
            said.push(format!("       {failure}"));
            let first = current.output.len().saturating_sub(LAST_WORDS);
            let last_words: String =
                current.output[first..].iter().map(|line| format!("\n{}", shown(line))).collect();
            self.failures.push(format!("{}: {job}: {failure}{last_words}", self.machine));
        }
        if is_bench {
            let program = job.program.clone();
            self.figures.push(Figures { program, lines: current.figures });
        }
        said
    }
}

/// Describes what is wrong with a job that ended so.
fn complaint(job: &Job, code: i32, not_ready: u64, is_silent: bool) -> Option<String> {
    match code {
        0 if not_ready > 0 && !job.expects_not_ready() => {
            Some(format!("the device counted {not_ready} times that a receiver was not ready"))
        }
        0 if job.kind == Kind::Bench && is_silent => Some("printed no figures".to_owned()),
        0 => None,
        KILLED => Some(format!("was killed, after {} s at the latest", job.limit_s)),
        code => Some(format!("exited with {code}")),
    }
}

/// Lines of a program that failed which stand with its failure, too: all that was said before may
/// be far above, and of a long output often the end alone is kept.
const LAST_WORDS: usize = 12;

/// Exit code that shells give for the signal that nobody survives.
const KILLED: i32 = 128 + 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Vec<Job> {
        vec![
            Job::test(Kind::Fault, "fault_credit", "a_peer_dies"),
            Job::test(Kind::Fault, "fault_credit", "receiver_not_ready_is_seen"),
            Job::bench("ping_pong"),
        ]
    }

    fn results(lines: &[&str]) -> (Results, Vec<String>) {
        let mut results = Results::new("det", &jobs());
        let said = lines.iter().flat_map(|line| results.handle_line(line)).collect();
        (results, said)
    }

    const WELL: [&str; 9] = [
        "start 0 2.10",
        "output running 1 test\r",
        "done 0 0 2.25 0\r",
        "start 1 3",
        "done 1 0 4 2",
        "start 2 5",
        "figure {\"bench\": \"x\"}",
        "done 2 0 6 0",
        "end well",
    ];

    #[test]
    fn a_run_without_complaint_passes_with_figures() {
        let (results, said) = results(&WELL);
        assert_eq!(results.failures(), [""; 0]);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("passed    0.15 s"), "{said:?}");
        let lines = vec!["{\"bench\": \"x\"}".to_owned()];
        assert_eq!(results.figures(), [Figures { program: "ping_pong".to_owned(), lines }]);
    }

    #[test]
    fn files_of_results_are_put_together() {
        let (results, _) =
            results(&["file a/b.svg <svg>", "file c {", "file a/b.svg ", "file c  }"]);
        let files: Vec<_> = results.files().iter().collect();
        let expected = [("a/b.svg", "<svg>\n\n"), ("c", "{\n }\n")];
        assert_eq!(files.len(), 2);
        for ((name, text), expected) in files.into_iter().zip(expected) {
            assert_eq!((name.as_str(), text.as_str()), expected);
        }
    }

    #[test]
    fn a_failing_case_is_named_and_shows_its_output() {
        let words: Vec<_> = (0..LAST_WORDS).map(|nth| format!("output word {nth}")).collect();
        let mut lines = vec!["start 0 1", "output early"];
        lines.extend(words.iter().map(String::as_str));
        lines.push("done 0 101 2 0");
        let (results, said) = results(&lines);
        assert!(said.iter().any(|line| line.ends_with("| early")), "{said:?}");
        let failure = &results.failures()[0];
        let expected = "a_peer_dies: exited with 101\n       | word 0\n";
        assert!(failure.contains(expected) && failure.ends_with("| word 11"), "{failure}");
    }

    #[test]
    fn only_cases_named_after_it_may_find_a_receiver_not_ready() {
        let (results, _) = results(&["start 0 1", "done 0 0 2 1", "start 1 2", "done 1 0 3 1"]);
        let failures = results.failures();
        assert!(failures[0].contains("a_peer_dies: the device counted 1"), "{failures:?}");
        assert_eq!(failures.len(), 2, "and the machine did not end: {failures:?}");
    }

    #[test]
    fn a_device_that_was_made_anew_has_counted_none() {
        let (results, _) = results(&["start 0 1", "done 0 0 2 -4"]);
        let failures = results.failures();
        assert!(failures.iter().all(|failure| !failure.contains("counted")), "{failures:?}");
        assert!(failures.iter().any(|failure| failure.contains("stopped during")), "{failures:?}");
    }

    #[test]
    fn a_case_that_hangs_is_told_from_one_that_fails() {
        let (results, _) = results(&["start 0 1", "done 0 137 61 0"]);
        assert!(results.failures()[0].contains("was killed, after 120 s"));
    }

    #[test]
    fn a_bench_without_figures_fails() {
        let mut lines = WELL;
        lines[6] = "output nothing to say";
        assert!(results(&lines).0.failures()[0].contains("printed no figures"));
    }

    #[test]
    fn a_machine_that_stops_fails_with_what_ran() {
        let (results, _) = results(&WELL[..4]);
        let expected =
            "det: the machine stopped during fault fault_credit receiver_not_ready_is_seen";
        assert_eq!(results.failures(), [expected]);
    }

    #[test]
    fn a_kernel_that_complains_fails_the_run() {
        let mut lines = WELL.to_vec();
        lines.insert(8, "kernel [ 2.1] WARNING: CPU: 0 PID: 1");
        assert_eq!(results(&lines).0.failures(), ["det: kernel: [ 2.1] WARNING: CPU: 0 PID: 1"]);
    }

    #[test]
    fn a_machine_that_ends_early_or_for_a_reason_fails() {
        let (early, _) = results(&["start 0 1", "done 0 0 2 0", "end well"]);
        assert_eq!(early.failures(), ["det: 1 of 3 ran"]);
        let (reasoned, _) = results(&["end no RDMA device"]);
        assert_eq!(reasoned.failures()[0], "det: no RDMA device");
    }

    #[test]
    fn lines_of_others_are_passed_on() {
        assert_eq!(results(&["[    0.1] tsc: bad", "done x"]).1.len(), 2);
        let (results, _) = results(&["counter send_rnr_err 3", "counter rcvd_rnr_err 4"]);
        assert!(results.summary().contains("3 sent, 4 received"));
    }
}
