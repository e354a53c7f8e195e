//! One run of the command: builds the programs, boots the machines, gathers what they say.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, ensure};

use super::Options;
use super::host::Device;
use super::image::{SUITE, image};
use super::kernel::Kernel;
use super::machine::{Cable, Machine, listen};
use super::packages::Apt;
use super::plan::{Job, Mode, Program};
use super::programs::build;
use super::replicated;
use super::results::Results;
use crate::workspace::Workspace;

/// Run that is ready to start.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    options: &'a Options,
    deadline: Instant,
    folder: PathBuf,
    programs: Vec<Program>,
    /// One line at a time, when several machines speak.
    terminal: Mutex<()>,
}

impl<'a> Run<'a> {
    /// Builds the programs, in a folder of the build's own where logs and figures go, too.
    ///
    /// # Errors
    /// Something does not compile, or the disk is full.
    pub(crate) fn prepare(
        workspace: &Workspace,
        options: &'a Options,
        deadline: Instant,
    ) -> anyhow::Result<Self> {
        let folder = workspace.target()?.join("rdma");
        if folder.is_dir() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("emptying {}", folder.display()))?;
        }
        let runs = replicated::cases(options.long, options.quick);
        let programs = build(workspace, &options.kinds(), runs, &folder.join("programs"))?;
        Ok(Self { options, deadline, folder, programs, terminal: Mutex::new(()) })
    }

    /// Folder of logs and figures.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file there.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.folder.join(name), text).with_context(|| format!("writing {name}"))
    }

    /// Runs the programs in machines, mode after mode.
    ///
    /// # Errors
    /// A machine cannot be built.
    pub(crate) fn in_machines(&self, apt: &mut Apt) -> anyhow::Result<Vec<Results>> {
        let kernel = Kernel::get(&cache(&self.folder)?, apt)?;
        let mut results = Vec::new();
        for mode in self.options.modes() {
            let tests = self.options.choice().tests(mode, &self.programs);
            match mode {
                Mode::Det => results.extend(self.counted(&kernel, &tests)?),
                _ if tests.is_empty() => {}
                Mode::Pair => results.extend(self.pair(&kernel, &tests)?),
                Mode::Smp => results.push(self.boot("smp", mode, None, &kernel, &tests)?),
            }
        }
        // A machine of its own, in which nothing else takes time.
        let races = self.options.choice().replicated(Mode::Smp, &self.programs);
        let is_chosen = self.options.mode.is_empty() || self.options.mode.contains(&Mode::Smp);
        if is_chosen && !races.is_empty() {
            results.push(self.boot("races", Mode::Smp, None, &kernel, &races)?);
        }
        ensure_some(&results)?;
        if !self.options.keep {
            fs::remove_dir_all(self.folder.join("programs")).context("removing the programs")?;
        }
        Ok(results)
    }

    /// Runs the tests and the benches where time repeats. Each round of the benches has a machine
    /// of its own: what the kernel has been through before shows in what a path through it costs.
    /// As many run at once as this host has processors: a clock that counts instructions does not
    /// see how busy it is.
    fn counted(&self, kernel: &Kernel, tests: &[Job]) -> anyhow::Result<Vec<Results>> {
        let choice = self.options.choice();
        let benches = choice.benches(&self.programs);
        let replicated = choice.replicated(Mode::Det, &self.programs);
        // Each by itself: they are long.
        let of_one = |job: &[Job]| job[0].to_string();
        let mut machines: Vec<_> = replicated.chunks(1).map(|job| (of_one(job), job)).collect();
        machines.push(("det".to_owned(), tests));
        let round = |number| (format!("bench {number}"), &benches[..]);
        machines.extend((1..=choice.bench_rounds).map(round));
        machines.retain(|(_, jobs)| !jobs.is_empty());
        let next = AtomicUsize::new(0);
        let boot_some = || {
            let mut ended = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((name, jobs)) = machines.get(at) else { return Ok(ended) };
                let results = self.boot(name, Mode::Det, None, kernel, jobs);
                if results.is_err() {
                    // The others need not begin.
                    next.store(machines.len(), Ordering::Relaxed);
                }
                ended.push((at, results?));
            }
        };
        let mut ended = std::thread::scope(|scope| -> anyhow::Result<Vec<_>> {
            let processors = available_parallelism().map_or(1, usize::from);
            let running: Vec<_> = (0..processors).map(|_| scope.spawn(boot_some)).collect();
            let all =
                running.into_iter().map(|some| some.join().expect("it hands its errors back"));
            Ok(all.collect::<anyhow::Result<Vec<_>>>()?.concat())
        })?;
        ended.sort_by_key(|(at, _)| *at);
        Ok(ended.into_iter().map(|(_, results)| results).collect())
    }

    /// Runs the programs that harm nobody on this host.
    ///
    /// # Errors
    /// The device is gone, there is nothing to run, or the disk is full.
    pub(crate) fn on_host(&self) -> anyhow::Result<Vec<Results>> {
        let device = Device::find(self.options.device.as_deref(), self.options.address)?;
        let jobs = self.options.choice().on_host(&self.programs);
        ensure_some(&jobs)?;
        self.write("suite.sh", SUITE)?;
        self.write("plan", &plan(&jobs))?;
        let mut shell = suite(&self.folder, &device.name);
        shell.env("RDMA_VM_ADDR", device.address.to_string());
        shell.envs(self.environment(Mode::Smp));
        let mut results = Results::new("host", &jobs);
        let ended = listen(&mut shell, self.deadline, |line| self.on_line(&mut results, line));
        if let Err(error) = ended {
            results.handle_death(&format!("{error:#}"));
        }
        Ok(vec![results])
    }

    /// Runs two machines on a cable, the same jobs in both.
    fn pair(&self, kernel: &Kernel, jobs: &[Job]) -> anyhow::Result<Vec<Results>> {
        // Paths of sockets are short, so they are not below our folder.
        let sockets = std::env::temp_dir().join(format!("convoke-rdma-{}", std::process::id()));
        fs::create_dir_all(&sockets).with_context(|| format!("making {}", sockets.display()))?;
        let end = |role: char| sockets.join(role.to_string());
        let cable = |role, other| Cable { role, ours: end(role), theirs: end(other) };
        let boot = |name, cable| self.boot(name, Mode::Pair, Some(cable), kernel, jobs);
        let both = std::thread::scope(|scope| {
            let first = scope.spawn(|| boot("pair a", cable('a', 'b')));
            let second = boot("pair b", cable('b', 'a'));
            [first.join().expect("it hands its errors back"), second]
        });
        fs::remove_dir_all(&sockets).with_context(|| format!("removing {}", sockets.display()))?;
        both.into_iter().collect()
    }

    fn boot(
        &self,
        name: &str,
        mode: Mode,
        cable: Option<Cable>,
        kernel: &Kernel,
        jobs: &[Job],
    ) -> anyhow::Result<Results> {
        let file = |kind: &str| self.folder.join(format!("{}.{kind}", name.replace(' ', "-")));
        let disk = image(kernel, &self.folder.join("programs"), &plan(jobs))?;
        fs::write(file("image"), disk).context("writing the image")?;
        let mut log = File::create(file("log")).context("making a log")?;
        let machine = Machine {
            mode,
            cable,
            kvm: self.options.kvm,
            environment: self.environment(mode),
            kernel: kernel.image(),
            image: file("image"),
            console: file("console"),
        };
        let mut results = Results::new(name, jobs);
        let start = Instant::now();
        let ended = machine.run(self.deadline, |line| {
            let _ = writeln!(log, "{:7.2} {}", start.elapsed().as_secs_f64(), line.trim_end());
            self.on_line(&mut results, line);
        });
        if let Err(error) = ended {
            results.handle_death(&format!("{error:#}"));
            println!("{}", last_lines(&file("console")));
        }
        println!("{name}: off after {:.1} s", start.elapsed().as_secs_f64());
        if !self.options.keep {
            fs::remove_file(file("image")).context("removing the image")?;
        }
        Ok(results)
    }

    fn on_line(&self, results: &mut Results, line: &str) {
        let said = results.handle_line(line);
        let _terminal = self.terminal.lock();
        said.iter().for_each(|line| println!("{line}"));
    }

    /// Environment of the programs, beside the device: a flag to be short, and how
    /// many seconds to keep both ends saturated. Where instructions are counted, a second takes
    /// two.
    fn environment(&self, mode: Mode) -> Vec<(String, String)> {
        let seconds = match (self.options.quick, mode) {
            (true, _) => "4",
            (false, Mode::Det) => "10",
            (false, _) => "60",
        };
        let mut variables = vec![
            ("RDMA_VM_SECONDS".to_owned(), seconds.to_owned()),
            ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
        ];
        if self.options.quick {
            variables.push(("RDMA_VM_QUICK".to_owned(), "1".to_owned()));
        }
        variables
    }
}

/// A run without jobs proves nothing.
fn ensure_some<T>(chosen: &[T]) -> anyhow::Result<()> {
    ensure!(!chosen.is_empty(), "nothing to run: no program fits --only, --name and --mode");
    Ok(())
}

/// The suite on this host: its script, plan and programs are in `folder`.
fn suite(folder: &Path, device: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3>&1; . ./suite.sh && echo end well"]).current_dir(folder);
    shell.env("PROGRAMS", folder.join("programs")).env("PLAN", "plan").env("SCRATCH", ".");
    shell.env("RDMA_VM", "1").env("RDMA_VM_DEV", device);
    shell
}

/// The last of what a kernel said; it may have stopped in the middle of a character.
fn last_lines(console: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// A kernel that gives up says so in about as many.
const LAST_LINES: usize = 40;

fn plan(jobs: &[Job]) -> String {
    jobs.iter().map(Job::line).collect()
}

/// Folder in which kernels are kept: they outlive a clone, and are too large to be fetched for
/// each.
fn cache(folder: &Path) -> anyhow::Result<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    let cache = cache.unwrap_or_else(|| folder.with_file_name("rdma-cache")).join("convoke-rdma");
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    Ok(cache)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_suite_ends_well_where_a_device_has_no_counters() {
        let folder = std::env::temp_dir().join(format!("xtask-suite-{}", std::process::id()));
        fs::create_dir_all(folder.join("programs")).expect("a folder");
        let jobs = [Job::bench("says")];
        let program = folder.join("programs/says");
        let files = [("suite.sh", SUITE), ("plan", &plan(&jobs)), ("programs/says", SAYS)];
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("it is written");
        }
        fs::set_permissions(program, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let mut results = Results::new("host", &jobs);
        let deadline = Instant::now() + Duration::from_secs(60);
        let ended = listen(&mut suite(&folder, "no-such-device"), deadline, |line| {
            results.handle_line(line);
        });
        fs::remove_dir_all(&folder).expect("it is ours");
        ended.expect("it ends");
        assert_eq!(results.failures(), [""; 0]);
        assert_eq!(results.figures()[0].lines, ["a figure"]);
    }

    const SAYS: &str = "#!/bin/sh\necho a figure\n";
}
