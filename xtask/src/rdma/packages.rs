//! Packages that a machine must have installed, those of them that are missing, and how they get
//! there.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// State of the machine that runs the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The `ID` of `/etc/os-release`, or what stands for it where there is none.
    pub(crate) system: String,
    /// As Rust names it.
    pub(crate) architecture: &'static str,
    /// True when packages could be installed.
    pub(crate) is_root: bool,
    /// The packages that are not installed; all when nobody can tell.
    pub(crate) missing: Vec<&'static str>,
}

/// Readiness that follows from that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// These packages are missing, and we may install them.
    Installable(Vec<&'static str>),
    /// Not here; says what is missing and what to do.
    Impossible(String),
}

impl Standing {
    /// Looks at the machine we run on, for these packages.
    pub(crate) fn look(packages: &[&'static str]) -> Self {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let system = system_of(&release).unwrap_or(std::env::consts::OS).to_owned();
        let missing = missing(packages, &installed(packages));
        let is_root = output("id", &["-u"]).is_some_and(|id| id.trim() == "0");
        Self { system, architecture: std::env::consts::ARCH, is_root, missing }
    }

    /// Decides if a virtual machine can be built and booted here.
    pub(crate) fn readiness(&self) -> Readiness {
        let Self { system, architecture, .. } = self;
        if system != "debian" || *architecture != "x86_64" {
            return Readiness::Impossible(format!(
                "the virtual machine is built from packages of Debian on x86_64, and this is {system} on \
                 {architecture}: use such a machine or container, or --host where there is an RDMA device"
            ));
        }
        if self.missing.is_empty() {
            return Readiness::Ready;
        }
        if self.is_root {
            return Readiness::Installable(self.missing.clone());
        }
        let missing = self.missing.join(" ");
        Readiness::Impossible(format!("these packages are missing: apt-get install {missing}"))
    }
}

/// Packages that build the programs that use verbs.
pub(crate) const BUILD: [&str; 4] =
    ["libclang-dev", "libibverbs-dev", "librdmacm-dev", "pkg-config"];

/// Packages that build and boot the virtual machine, beside those that build the programs.
pub(crate) const MACHINE: [&str; 7] = [
    "busybox-static",
    "ibverbs-providers",
    "iproute2",
    "kmod",
    "qemu-system-x86",
    "rdma-core",
    "xz-utils",
];

/// Installs packages and downloads others, with fresh lists of packages when it takes them.
#[derive(Debug, Default)]
pub(crate) struct Apt {
    is_updated: bool,
}

impl Apt {
    /// Installs these, without what they merely recommend.
    ///
    /// # Errors
    /// The network, the disk or the package system is in the way; it has said what is wrong.
    pub(crate) fn install(&mut self, packages: &[&str]) -> anyhow::Result<()> {
        let install = ["install", "--yes", "--no-install-recommends"];
        self.run(&[&install, packages].concat(), Path::new("/"))
    }

    /// Puts the file of a package into a folder.
    ///
    /// # Errors
    /// As for [`Apt::install`].
    pub(crate) fn download(&mut self, package: &str, folder: &Path) -> anyhow::Result<()> {
        // As itself: the user that apt would change to may not write to the folder.
        self.run(&["-o", "APT::Sandbox::User=root", "download", package], folder)
    }

    /// Runs `apt-get`; when that fails, once more with fresh lists: old ones name files that are
    /// gone.
    fn run(&mut self, arguments: &[&str], folder: &Path) -> anyhow::Result<()> {
        if apt_get(arguments, folder)? || (self.update()? && apt_get(arguments, folder)?) {
            return Ok(());
        }
        anyhow::bail!("`apt-get {}` failed, see above", arguments.join(" "))
    }

    /// Fetches the lists of packages; false when this was done before.
    ///
    /// # Errors
    /// As for [`Apt::install`].
    pub(crate) fn update(&mut self) -> anyhow::Result<bool> {
        if std::mem::replace(&mut self.is_updated, true) {
            return Ok(false);
        }
        ensure!(apt_get(&["update"], Path::new("/"))?, "`apt-get update` failed, see above");
        Ok(true)
    }
}

fn apt_get(arguments: &[&str], folder: &Path) -> anyhow::Result<bool> {
    println!("$ apt-get {}", arguments.join(" "));
    let status = Command::new("apt-get")
        .arg("--quiet=2")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .current_dir(folder)
        .stdin(Stdio::null())
        .status()
        .context("apt-get could not be started")?;
    Ok(status.success())
}

/// Asks the package system about these, a line each; packages it never heard of have none.
fn installed(packages: &[&str]) -> String {
    let format = "--showformat=${Package} ${db:Status-Abbrev}\n";
    let query = Command::new("dpkg-query").args(["--show", format]).args(packages).output();
    query.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Those of the packages that are not fully installed.
fn missing(packages: &[&'static str], installed: &str) -> Vec<&'static str> {
    // The second letter of the state says what is, the first what is wanted.
    let is_there =
        |line: &str| line.split_once(' ').is_some_and(|(_, state)| state.get(1..2) == Some("i"));
    let there: Vec<&str> = installed
        .lines()
        .filter(|line| is_there(line))
        .filter_map(|line| line.split(' ').next())
        .collect();
    packages.iter().copied().filter(|package| !there.contains(package)).collect()
}

/// The `ID` in the text of an os-release file.
fn system_of(release: &str) -> Option<&str> {
    release.lines().find_map(|line| line.strip_prefix("ID=")).map(|id| id.trim_matches('"'))
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(system: &str, is_root: bool, missing: &[&'static str]) -> Standing {
        let missing = missing.to_vec();
        Standing { system: system.to_owned(), architecture: "x86_64", is_root, missing }
    }

    #[test]
    fn removed_and_unknown_packages_are_missing_and_held_ones_are_not() {
        let installed = "kmod ii \nxz-utils rc \niproute2 hi \nrdma-core iU \n";
        let packages = ["kmod", "xz-utils", "iproute2", "rdma-core", "pkg-config"];
        assert_eq!(missing(&packages, installed), ["xz-utils", "rdma-core", "pkg-config"]);
    }

    #[test]
    fn the_superuser_installs_what_is_missing() {
        assert_eq!(standing("debian", true, &[]).readiness(), Readiness::Ready);
        assert_eq!(standing("debian", false, &[]).readiness(), Readiness::Ready);
        let installable = Readiness::Installable(vec!["kmod"]);
        assert_eq!(standing("debian", true, &["kmod"]).readiness(), installable);
    }

    #[test]
    fn others_are_told_the_packages_by_name() {
        let Readiness::Impossible(reason) =
            standing("debian", false, &["kmod", "xz-utils"]).readiness()
        else {
            panic!("only the superuser can install");
        };
        assert!(reason.ends_with("apt-get install kmod xz-utils"), "{reason}");
    }

    #[test]
    fn other_systems_are_named() {
        let Readiness::Impossible(reason) = standing("fedora", true, &["kmod"]).readiness() else {
            panic!("there is no apt-get on fedora");
        };
        assert!(reason.contains("fedora on x86_64") && reason.contains("--host"), "{reason}");
        let arm = Standing { architecture: "aarch64", ..standing("debian", true, &[]) };
        assert!(
            matches!(arm.readiness(), Readiness::Impossible(reason) if reason.contains("aarch64"))
        );
    }

    #[test]
    fn the_system_is_read_with_and_without_quotes() {
        assert_eq!(system_of("NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n"), Some("debian"));
        assert_eq!(system_of("ID=\"rhel\"\n"), Some("rhel"));
        assert_eq!(system_of("NAME=x\n"), None);
    }
}
