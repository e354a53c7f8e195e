//! Disk image of a machine: tools, modules, the RDMA driver, programs and their libraries,
//! the plan. It is all in memory, put together anew for each run, which takes a moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::cpio::Archive;
use super::kernel::Kernel;

/// The disk of a machine that boots this kernel and works off this plan with the programs in a
/// folder.
///
/// # Errors
/// A file of an installed package is not where it should be.
pub(crate) fn image(kernel: &Kernel, programs: &Path, plan: &str) -> anyhow::Result<Vec<u8>> {
    let mut archive = Archive::default();
    ["proc", "sys", "dev", "tmp", "sbin"].iter().for_each(|folder| archive.folder(folder));
    archive.file("init", INIT.as_bytes(), true);
    archive.file("suite.sh", SUITE.as_bytes(), false);
    archive.file("plan", plan.as_bytes(), false);
    for tool in ["busybox", "ip", "rdma", "tc"] {
        add_program(&mut archive, &format!("bin/{tool}"), &find(&TOOL_FOLDERS, tool)?)?;
    }
    for module in files_in(&kernel.modules())? {
        archive.file(&format!("modules/{}", name_of(&module)), &read(&module)?, false);
    }
    add_driver(&mut archive)?;
    for program in files_in(programs)? {
        add_program(&mut archive, &format!("programs/{}", name_of(&program)), &program)?;
    }
    Ok(archive.finish())
}

/// Script that the suite runs in; also for a host without a machine.
pub(crate) const SUITE: &str = include_str!("guest/suite.sh");
const INIT: &str = include_str!("guest/init.sh");

const TOOL_FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// The driver of soft-RoCE, which libibverbs looks for by itself, and a library that Rust's
/// programs load when a thread ends.
fn add_driver(archive: &mut Archive) -> anyhow::Result<()> {
    archive.file("etc/libibverbs.d/rxe.driver", b"driver rxe\n", false);
    let folder = format!("{LIBRARIES}/libibverbs");
    let is_driver = |path: &&PathBuf| name_of(path).starts_with("librxe-");
    let drivers = files_in(Path::new(&folder))?;
    let driver = drivers.iter().find(is_driver).context("ibverbs-providers has no librxe")?;
    add_program(archive, &format!("{folder}/{}", name_of(driver)), driver)?;
    let unwinder = find(&[LIBRARIES, "/lib/x86_64-linux-gnu"], "libgcc_s.so.1")?;
    add_program(archive, &unwinder.display().to_string(), &unwinder)
}

/// Adds a program and the libraries it loads.
fn add_program(archive: &mut Archive, path: &str, program: &Path) -> anyhow::Result<()> {
    archive.file(path, &read(program)?, true);
    let ldd = Command::new("ldd").arg(program).output().context("`ldd` could not be started")?;
    for library in libraries(&String::from_utf8_lossy(&ldd.stdout)) {
        if !archive.has(library) {
            archive.file(library, &read(Path::new(library))?, true);
        }
    }
    Ok(())
}

/// The files in what `ldd` prints; none of a program that is linked statically.
fn libraries(ldd: &str) -> impl Iterator<Item = &str> {
    ldd.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

fn find(folders: &[&str], name: &str) -> anyhow::Result<PathBuf> {
    let places = folders.iter().map(|folder| Path::new(folder).join(name));
    places.into_iter().find(|path| path.exists()).with_context(|| format!("there is no {name}"))
}

fn files_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = || format!("looking into {}", folder.display());
    let entries = fs::read_dir(folder).with_context(listed)?;
    let paths = entries.map(|entry| Ok(entry.with_context(listed)?.path()));
    let mut paths = paths.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!paths.is_empty(), "there is nothing in {}", folder.display());
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_with_and_without_a_name_before_them() {
        let ldd = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7e)\n";
        assert_eq!(libraries(ldd).collect::<Vec<_>>(), ["/lib/x/libc.so.6", "/lib64/ld.so.2"]);
        assert_eq!(libraries("\tnot a dynamic executable\n").count(), 0);
    }

    #[test]
    fn the_suite_says_only_what_is_understood() {
        // Each `echo` to the host begins with a word of results.rs.
        for line in SUITE.lines().chain(INIT.lines()).filter(|line| line.contains(">&3")) {
            let words =
                ["start ", "done ", "figure ", "output ", "file ", "counter ", "kernel ", "end "];
            assert!(words.iter().any(|word| line.contains(word)), "{line}");
        }
    }
}
