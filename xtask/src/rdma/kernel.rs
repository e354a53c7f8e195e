//! A stock kernel of the distribution: downloaded, unpacked and kept, never installed.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::modules::{Dependencies, SETS, name_of};
use super::packages::Apt;

/// A kernel and its modules, unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// The kernel that this system would install today, from `cache` or the network.
    ///
    /// # Errors
    /// There is no network, no room on the disk, or the package is not as expected.
    pub(crate) fn get(cache: &Path, apt: &mut Apt) -> anyhow::Result<Self> {
        let package = newest_package(apt)?;
        let folder = cache.join(format!("{package}-{:016x}", key()));
        if !folder.is_dir() {
            println!("unpacking {package} to {}", folder.display());
            // Made aside and renamed, so that what is there is whole, whoever else makes it, too.
            let aside = cache.join(format!(".making-{}", std::process::id()));
            let made = make(&package, &aside, apt);
            let renamed = made.and_then(|()| Ok(fs::rename(aside.join("kernel"), &folder)?));
            let _ = fs::remove_dir_all(&aside);
            if !folder.is_dir() {
                renamed?;
            }
        }
        Ok(Self { folder })
    }

    /// Kernel image that the machine boots.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    /// The content of a module, and for each set a file that lists its modules in load order:
    /// everything in one folder.
    pub(crate) fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }
}

/// Changes when what we keep of a kernel changes.
fn key() -> u64 {
    let mut hasher = DefaultHasher::new();
    (SETS, FORMAT).hash(&mut hasher);
    hasher.finish()
}

/// To be counted up when the same sets are kept in another way.
const FORMAT: u32 = 1;

fn newest_package(apt: &mut Apt) -> anyhow::Result<String> {
    for _ in 0..2 {
        let output = Command::new("apt-cache").args(["depends", "linux-image-amd64"]).output();
        let output = output.context("apt-cache could not be started")?;
        if let Some(package) = package_of(&String::from_utf8_lossy(&output.stdout)) {
            return Ok(package.to_owned());
        }
        apt.update()?;
    }
    bail!("no package linux-image-amd64 in the lists of apt: see /etc/apt/sources.list")
}

/// The first kernel that the package of the newest one depends on.
fn package_of(depends: &str) -> Option<&str> {
    let packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    packages.into_iter().find(|package| package.starts_with("linux-image-"))
}

fn make(package: &str, aside: &Path, apt: &mut Apt) -> anyhow::Result<()> {
    let (unpacked, kept) = (aside.join("unpacked"), aside.join("kernel"));
    fs::create_dir_all(kept.join("modules"))
        .with_context(|| format!("making {}", kept.display()))?;
    apt.download(package, aside)?;
    let file = only_file(aside, |name| name.ends_with(".deb"))?;
    run(Command::new("dpkg").arg("--extract").args([&file, &unpacked]))?;
    let version = only_file(&unpacked.join("lib/modules"), |_| true)?;
    let version = version.file_name().context("the modules have no version")?.to_owned();
    run(Command::new("/sbin/depmod").arg("--basedir").arg(&unpacked).arg(&version))?;
    keep_modules(&unpacked.join("lib/modules").join(&version), &kept.join("modules"))?;
    let packed = only_file(&unpacked.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    keep_image(&packed, &kept.join("vmlinux"))
}

fn keep_modules(from: &Path, to: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(from.join("modules.dep")).context("reading modules.dep")?;
    let dependencies = Dependencies::parse(&text);
    for set in &SETS {
        let files = dependencies.load_order(set)?;
        for file in &files {
            keep_module(&from.join(file), &to.join(name_of(file) + ".ko"))?;
        }
        let list: String = files.iter().map(|file| name_of(file) + ".ko\n").collect();
        fs::write(to.join(set.name), list)?;
    }
    Ok(())
}

fn keep_module(from: &Path, to: &Path) -> anyhow::Result<()> {
    match from.extension().is_some_and(|extension| extension == "xz") {
        true => unxz(from, to),
        false => {
            fs::copy(from, to).map(drop).with_context(|| format!("reading {}", from.display()))
        }
    }
}

/// Keeps the kernel unpacked where we can unpack it: the machine would take seconds to do it.
fn keep_image(packed: &Path, to: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(packed).with_context(|| format!("reading {}", packed.display()))?;
    match payload(&bytes) {
        Some(payload) => {
            let aside = to.with_extension("xz");
            fs::write(&aside, payload)?;
            unxz(&aside, to)?;
            Ok(fs::remove_file(&aside)?)
        }
        None => Ok(fs::write(to, &bytes)?),
    }
}

/// The kernel proper in a boot image, if it is packed by xz. The boot protocol of Linux on x86 puts
/// the number of sectors before it at 0x1f1, and its place and length at 0x248.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().expect("four bytes were taken");
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let sectors = usize::from(*image.get(0x1f1)?) + 1;
    let start = 512 * sectors + number(0x248)?;
    let payload = image.get(start..start.checked_add(number(0x24c)?)?)?;
    payload.starts_with(b"\xfd7zXZ\0").then_some(payload)
}

fn unxz(from: &Path, to: &Path) -> anyhow::Result<()> {
    // Of the kernel, the length unpacked follows what is packed: not part of the stream.
    run(Command::new("xz")
        .args(["--decompress", "--stdout", "--single-stream"])
        .stdin(File::open(from)?)
        .stdout(File::create(to)?))
}

fn only_file(folder: &Path, is_it: impl Fn(&str) -> bool) -> anyhow::Result<PathBuf> {
    let listed = || format!("looking into {}", folder.display());
    for entry in fs::read_dir(folder).with_context(listed)? {
        let entry = entry.with_context(listed)?;
        if entry.file_name().to_str().is_some_and(&is_it) {
            return Ok(entry.path());
        }
    }
    bail!("the package has nothing like it in {}", folder.display())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("`{program}` could not be started"))?;
    ensure!(status.success(), "`{program}` failed: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_what_the_newest_one_depends_on() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-9-amd64\n    linux-base\n";
        assert_eq!(package_of(depends), Some("linux-image-6.1.0-9-amd64"));
        assert_eq!(package_of("linux-image-amd64\n  Suggests: linux-image-x\n"), None);
    }

    /// A boot image of two sectors before this payload.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * 512 + 8];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&8_u32.to_le_bytes());
        let length = u32::try_from(payload.len()).expect("short");
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend(payload);
        image
    }

    #[test]
    fn what_xz_packed_is_found_in_the_boot_image() {
        let packed = b"\xfd7zXZ\0 and so on";
        assert_eq!(payload(&[image(packed), b"behind".to_vec()].concat()), Some(&packed[..]));
    }

    #[test]
    fn an_image_packed_otherwise_or_cut_off_is_left_as_it_is() {
        assert_eq!(payload(&image(b"\x28\xb5\x2f\xfd zstd")), None);
        let whole = image(b"\xfd7zXZ\0 and so on");
        (0..whole.len()).for_each(|length| assert_eq!(payload(&whole[..length]), None));
    }
}
