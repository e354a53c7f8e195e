//! A small virtual machine: how it is started, listened to and ended.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use super::plan::Mode;
use crate::step::kill;

/// A machine to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) mode: Mode,
    /// One of a pair: where its end of the cable is, and the other's.
    pub(crate) cable: Option<Cable>,
    /// Let the processor run it. Not by default: where it exists it does not always work.
    pub(crate) kvm: bool,
    /// Environment of its programs.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) kernel: PathBuf,
    pub(crate) image: PathBuf,
    /// The file that gets what the kernel says.
    pub(crate) console: PathBuf,
}

/// An end of a cable between two machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cable {
    /// `a` or `b`.
    pub(crate) role: char,
    /// The sockets that both ends are, in the file system.
    pub(crate) ours: PathBuf,
    pub(crate) theirs: PathBuf,
}

impl Machine {
    /// Boots it and hands on what it says, line by line, until it is off.
    ///
    /// # Errors
    /// It cannot be started, does not end by itself, or not before the deadline.
    pub(crate) fn run(&self, deadline: Instant, on_line: impl FnMut(&str)) -> anyhow::Result<()> {
        let mut command = Command::new("qemu-system-x86_64");
        let status = listen(command.args(self.arguments()), deadline, on_line)?;
        // What a guest writes to the exit device comes out as 2 n + 1; all else was not its will.
        let console = self.console.display();
        ensure!(
            status.code() == Some(1),
            "the machine died ({status}): its kernel speaks in {console}"
        );
        Ok(())
    }

    fn arguments(&self) -> Vec<String> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut arguments =
            words("-machine pc -m 768 -nodefaults -display none -monitor none -no-reboot");
        arguments.extend(words(self.processor()));
        arguments.extend(words("-device isa-debug-exit,iobase=0xf4,iosize=0x4"));
        arguments.extend([
            "-chardev".to_owned(),
            format!("file,id=console,path={}", escaped(&self.console)),
        ]);
        arguments.extend(words("-serial chardev:console -serial stdio"));
        arguments.extend(["-kernel".to_owned(), self.kernel.display().to_string()]);
        arguments.extend(["-initrd".to_owned(), self.image.display().to_string()]);
        arguments.extend(["-append".to_owned(), self.kernel_line()]);
        match &self.cable {
            Some(cable) => arguments.extend(cable.arguments()),
            None => arguments.extend(words("-nic none")),
        }
        arguments
    }

    fn processor(&self) -> &'static str {
        match (self.mode, self.kvm) {
            // Two nanoseconds an instruction, and idle time is skipped.
            (Mode::Det, _) => {
                "-cpu max -smp 1 -accel tcg,thread=single,tb-size=256 -icount shift=1,sleep=off,align=off"
            }
            (Mode::Smp, false) => "-cpu max -smp 2 -accel tcg,thread=multi,tb-size=256",
            (Mode::Pair, false) => "-cpu max -smp 1 -accel tcg,thread=multi,tb-size=256",
            (Mode::Smp, true) => "-cpu host -smp 2 -accel kvm",
            (Mode::Pair, true) => "-cpu host -smp 1 -accel kvm",
        }
    }

    /// Command line of the kernel. It gives names it does not know to the first process.
    fn kernel_line(&self) -> String {
        let mut line = KERNEL_LINE.to_owned();
        if let Some(cable) = &self.cable {
            line += &format!(" RDMA_VM_ROLE={}", cable.role);
        }
        let variables = self.environment.iter().map(|(name, value)| format!(" {name}={value}"));
        line + &variables.collect::<String>()
    }
}

/// Leaves out what costs seconds under emulation and says nothing about RDMA: tests of the
/// kernel's cryptography, mitigations, the search for a clock, watchdogs. And the test of the
/// timer, by which a kernel panics where the host was busy for the moment that it takes.
const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable \
     no_timer_check random.trust_cpu=on cryptomgr.notests=1 nowatchdog rcupdate.rcu_expedited=1";

impl Cable {
    fn arguments(&self) -> [String; 4] {
        let (ours, theirs) = (escaped(&self.ours), escaped(&self.theirs));
        let last = if self.role == 'a' { 1 } else { 2 };
        [
            "-netdev".to_owned(),
            format!(
                "dgram,id=cable,local.type=unix,local.path={ours},remote.type=unix,remote.path={theirs}"
            ),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=cable,romfile=,mac=52:54:00:00:00:0{last}"),
        ]
    }
}

/// A path inside a list of settings.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Starts a program and hands on its lines; when the deadline passes it is killed, with all that it
/// has started.
///
/// # Errors
/// It cannot be started, or is not over in time.
pub(crate) fn listen(
    command: &mut Command,
    deadline: Instant,
    mut on_line: impl FnMut(&str),
) -> anyhow::Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("`{program}` could not be started"))?;
    let output = child.stdout.take().expect("the output was just piped");
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        lines.map_while(|line| sender.send(line).ok()).for_each(drop)
    });
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => on_line(&String::from_utf8_lossy(&line)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Also after a line: one that always has another to say would go on.
        if Instant::now() >= deadline {
            let running = kill(&mut child);
            bail!("it was not over in the time that --minutes gives, so it was stopped{running}");
        }
    }
    reader.join().ok();
    child.wait().with_context(|| format!("waiting for `{program}`"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use super::*;

    fn machine(mode: Mode, kvm: bool, cable: Option<Cable>) -> Machine {
        let [kernel, image, console] = ["vmlinux", "image", "a,b/console"].map(PathBuf::from);
        let environment = vec![("RDMA_VM_QUICK".to_owned(), "1".to_owned())];
        Machine { mode, cable, kvm, environment, kernel, image, console }
    }

    #[test]
    fn the_clock_counts_instructions_where_times_must_repeat() {
        let line = machine(Mode::Det, false, None).arguments().join(" ");
        assert!(line.contains("-smp 1 ") && line.contains("-icount shift=1,sleep=off"), "{line}");
        assert!(!machine(Mode::Smp, false, None).arguments().join(" ").contains("-icount"));
    }

    #[test]
    fn only_who_asks_for_kvm_gets_it_and_never_with_a_counted_clock() {
        let uses_kvm = |mode, kvm| machine(mode, kvm, None).arguments().join(" ").contains("kvm");
        assert!(uses_kvm(Mode::Smp, true) && uses_kvm(Mode::Pair, true));
        assert!(!uses_kvm(Mode::Smp, false) && !uses_kvm(Mode::Det, true));
    }

    #[test]
    fn the_ends_of_a_cable_are_each_others() {
        let cable = |role, ours: &str, theirs: &str| Cable {
            role,
            ours: ours.into(),
            theirs: theirs.into(),
        };
        let a = machine(Mode::Pair, false, Some(cable('a', "x", "y"))).arguments().join(" ");
        assert!(a.contains("local.path=x,remote.type=unix,remote.path=y"), "{a}");
        assert!(
            a.contains("RDMA_VM_ROLE=a RDMA_VM_QUICK=1") && a.contains("mac=52:54:00:00:00:01")
        );
        let b = machine(Mode::Pair, false, Some(cable('b', "y", "x"))).arguments().join(" ");
        assert!(b.contains("RDMA_VM_ROLE=b") && b.contains("00:02"), "{b}");
    }

    #[test]
    fn commas_of_paths_are_doubled() {
        let arguments = machine(Mode::Det, false, None).arguments();
        assert!(arguments.contains(&"file,id=console,path=a,,b/console".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn what_a_program_says_is_handed_on_line_by_line() {
        let mut lines = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut shell = Command::new("sh");
        let status = listen(shell.args(["-c", "echo a; echo b; exit 3"]), deadline, |line| {
            lines.push(line.to_owned());
        });
        assert_eq!(status.expect("it ran").code(), Some(3));
        assert_eq!(lines, ["a", "b"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_does_not_end_is_stopped_at_the_deadline() {
        let mut cat = Command::new("sh");
        let result = listen(cat.args(["-c", "exec sleep 1000"]), Instant::now(), |_| {});
        let error = result.expect_err("it would run on").to_string();
        assert!(error.contains("--minutes"), "{error}");
    }

    /// As a job of the suite, which `timeout` puts into a process group of its own.
    #[cfg(target_os = "linux")]
    #[test]
    fn nothing_that_a_program_has_started_outlives_the_deadline() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut shell = Command::new("sh");
        shell.args(["-c", "timeout 600 sleep 600; sleep 600"]).stderr(writer);
        let deadline = Instant::now() + Duration::from_millis(200);
        listen(&mut shell, deadline, |_| {}).expect_err("it would run on");
        drop(shell);
        // It ends with the last that holds it.
        assert_eq!(reader.read_to_end(&mut Vec::new()).expect("it is read"), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_always_says_more_is_stopped_at_the_deadline() {
        let (mut lines, mut shell) = (0, Command::new("sh"));
        let endless = shell.args(["-c", "while :; do echo more; done"]);
        let result = listen(endless, Instant::now(), |_| lines += 1);
        result.expect_err("it would run on");
        assert!(lines <= 1, "{lines}");
    }
}
