//! `cargo xtask wan`: looks whether a WAN can be made on this machine, and hands over to the lab.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::step::{CANNOT_RUN, Step};
use crate::workspace::Workspace;

/// Builds and becomes the lab, or says what is missing for it.
///
/// # Errors
/// The lab could not be started.
pub(crate) fn run(workspace: &Workspace, arguments: Vec<String>) -> anyhow::Result<ExitCode> {
    let missing = missing(&Machine::this());
    if !missing.is_empty() {
        eprintln!("there can be no WAN on this machine; missing:");
        missing.iter().for_each(|what| eprintln!("- {what}"));
        return Ok(ExitCode::from(CANNOT_RUN));
    }
    let lab = Step::cargo(["run", "--release", "-p", "wan-lab", "--"]).args(measurement(arguments));
    println!("$ {lab}");
    lab.take_over(workspace.root())
}

/// Arguments of the program: `loss` stands for calls over a path that loses packets, `figures` for
/// all rows of the tables, and everything else for the options of broadcasts.
fn measurement(mut arguments: Vec<String>) -> Vec<String> {
    let names = ["loss", "figures"];
    if arguments.first().is_none_or(|first| !names.contains(&first.as_str())) {
        arguments.insert(0, "lab".to_owned());
    }
    arguments
}

/// Properties of a machine that matter.
struct Machine {
    is_linux: bool,
    is_root: bool,
    has_tun: bool,
    has_program: fn(&str) -> bool,
}

impl Machine {
    fn this() -> Self {
        let id = Command::new("id").arg("-u").output();
        Self {
            is_linux: cfg!(target_os = "linux"),
            is_root: id.is_ok_and(|output| output.stdout.trim_ascii() == b"0"),
            has_tun: Path::new("/dev/net/tun").exists(),
            has_program: |program| {
                let version = Command::new(program).arg("-V").stdout(Stdio::null()).status();
                version.is_ok_and(|status| status.success())
            },
        }
    }
}

/// Lists what has to be there first, a line each.
fn missing(machine: &Machine) -> Vec<&'static str> {
    if !machine.is_linux {
        return vec!["Linux: the sites are network namespaces with tun devices"];
    }
    let needs = [
        (machine.is_root, "root: run it by sudo"),
        ((machine.has_program)("ip"), "the program `ip`: install iproute2"),
        ((machine.has_program)("tc"), "the program `tc`: install iproute2"),
        (machine.has_tun, "the device /dev/net/tun: load the kernel module tun"),
    ];
    needs.into_iter().filter(|(is_there, _)| !is_there).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_are_measured_unless_something_else_is_named() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for line in ["loss --rtt-ms 40", "figures --svg charts"] {
            assert_eq!(measurement(words(line)), words(line));
        }
        assert_eq!(measurement(words("--sites 5")), words("lab --sites 5"));
        assert_eq!(measurement(Vec::new()), ["lab"]);
    }

    #[test]
    fn everything_that_is_missing_is_named() {
        let mut machine =
            Machine { is_linux: true, is_root: true, has_tun: true, has_program: |_| true };
        assert!(missing(&machine).is_empty());
        machine.is_root = false;
        machine.has_program = |program| program == "ip";
        let found = missing(&machine);
        assert!(found.len() == 2 && found[0].contains("root") && found[1].contains("`tc`"));
        machine.is_linux = false;
        assert_eq!(missing(&machine).len(), 1);
    }
}
