//! The repository the commands work on: its folder and what cargo says is in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use cargo_metadata::{CargoOpt, Metadata, MetadataCommand};

use crate::features::needing_system;

/// The root folder of the repository.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

/// Package, as far as the lanes need to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The licence expression; `None` when the package declares none that we know.
    pub(crate) licence: Option<String>,
    /// The features that build anywhere by name, `default` among them when there is one.
    pub(crate) features: Vec<String>,
    /// The features that build only where something of the system is installed.
    pub(crate) system_features: Vec<String>,
}

impl Workspace {
    /// The repository this program was started from by cargo.
    ///
    /// # Errors
    /// The program was not started by cargo, or its package was moved out of the repository.
    pub(crate) fn find() -> anyhow::Result<Self> {
        // Read when we run, not when we were built: a checkout may move and keep its target folder.
        let package = std::env::var_os("CARGO_MANIFEST_DIR")
            .context("started by hand: run it as `cargo xtask`")?;
        let root = Path::new(&package).parent().context("the package has no parent folder")?;
        Ok(Self { root: root.to_owned() })
    }

    /// The repository in this folder.
    #[cfg(test)]
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder of the root manifest.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file, named relative to the root.
    ///
    /// # Errors
    /// The file cannot be read; the error names it.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.root.join(name)).with_context(|| format!("reading {name}"))
    }

    /// Paths of the files that git tracks, or would with the next `git add`, from the root; `None`
    /// when git does not know the folder.
    pub(crate) fn files(&self) -> Option<Vec<String>> {
        let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let listing = self.output_of("git", &arguments).ok()?;
        let listing = String::from_utf8_lossy(&listing).into_owned();
        Some(listing.split_terminator('\0').map(str::to_owned).collect())
    }

    /// Runs the program in the root folder and gives what it prints on its standard output.
    ///
    /// # Errors
    /// It cannot be started or does not succeed; what it complained of is part of the error.
    pub(crate) fn output_of(&self, program: &str, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let line = format!("{program} {}", arguments.join(" "));
        let output = Command::new(program)
            .args(arguments)
            .current_dir(&self.root)
            .output()
            .with_context(|| format!("`{line}` could not be started"))?;
        if !output.status.success() {
            bail!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    /// The packages of this repository.
    ///
    /// # Errors
    /// `cargo metadata` fails, such as on a malformed manifest.
    pub(crate) fn members(&self) -> anyhow::Result<Vec<Package>> {
        Ok(packages(&self.metadata()?.packages))
    }

    /// The packages of this repository and all they depend on, on any platform, with all features.
    ///
    /// # Errors
    /// `cargo metadata` fails, such as on a malformed manifest.
    pub(crate) fn packages(&self) -> anyhow::Result<Vec<Package>> {
        let metadata = self.ask_cargo().features(CargoOpt::AllFeatures).exec()?;
        Ok(packages(&metadata.packages))
    }

    /// The folder that cargo builds into.
    ///
    /// # Errors
    /// `cargo metadata` fails, such as on a malformed manifest.
    pub(crate) fn target(&self) -> anyhow::Result<PathBuf> {
        Ok(self.metadata()?.target_directory.into())
    }

    /// All that cargo says of the packages of this repository.
    ///
    /// # Errors
    /// `cargo metadata` fails, such as on a malformed manifest.
    pub(crate) fn metadata(&self) -> anyhow::Result<Metadata> {
        Ok(self.ask_cargo().no_deps().exec()?)
    }

    fn ask_cargo(&self) -> MetadataCommand {
        let mut command = MetadataCommand::new();
        command.current_dir(&self.root);
        command
    }
}

/// Facts about these that the lanes need, sorted by name.
pub(crate) fn packages(all: &[cargo_metadata::Package]) -> Vec<Package> {
    let needing = needing_system(all);
    let mut packages: Vec<_> = all.iter().map(|package| package_of(package, &needing)).collect();
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    packages
}

fn package_of(package: &cargo_metadata::Package, needing: &BTreeSet<(String, String)>) -> Package {
    let name = package.name.to_string();
    let (system_features, features) = package
        .features
        .keys()
        .cloned()
        .partition(|feature| needing.contains(&(name.clone(), feature.clone())));
    Package {
        version: package.version.to_string(),
        licence: package.license.clone().or_else(|| licence_of_file(package)),
        features,
        system_features,
        name,
    }
}

/// The licence of a package that names a file instead: by its title, which is all that we need to
/// know; cargo-deny compares the rest of the text.
fn licence_of_file(package: &cargo_metadata::Package) -> Option<String> {
    let text = std::fs::read_to_string(package.license_file()?).ok()?;
    let known = [("MIT License", "MIT"), ("Apache License", "Apache-2.0")];
    let title = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    known.iter().find(|(name, _)| *name == title).map(|(_, licence)| (*licence).to_owned())
}

/// A package of which cargo says this, and the least that it says of any.
#[cfg(test)]
pub(crate) fn package_saying(said: &serde_json::Value) -> cargo_metadata::Package {
    let mut package = serde_json::json!({
        "name": "x", "version": "1.0.0", "id": "x", "manifest_path": "/x/Cargo.toml",
        "dependencies": [], "features": {}, "targets": [],
    });
    for (key, value) in said.as_object().into_iter().flatten() {
        package[key] = value.clone();
    }
    for dependency in package["dependencies"].as_array_mut().into_iter().flatten() {
        let least = [
            ("req", "*".into()),
            ("kind", serde_json::Value::Null),
            ("optional", false.into()),
            ("uses_default_features", true.into()),
            ("features", [""; 0].into()),
        ];
        for (key, value) in least {
            dependency.as_object_mut().expect("an object").entry(key).or_insert(value);
        }
    }
    serde_json::from_value(package).expect("a package")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_are_read_with_features_and_licence() {
        let b = json!({"name": "b", "license": null});
        let a = json!({"name": "a", "license": "MIT", "features": {"default": ["x"], "x": []}});
        let [a, b] = &packages(&[package_saying(&b), package_saying(&a)])[..] else {
            panic!("two packages were given");
        };
        assert_eq!((a.name.as_str(), a.licence.as_deref()), ("a", Some("MIT")));
        assert_eq!(a.features, ["default", "x"]);
        assert_eq!((b.licence.as_deref(), b.features.len()), (None, 0));
    }

    #[test]
    fn features_that_need_the_system_are_told_apart() {
        let facade = json!({
            "name": "facade", "features": {"rdma": ["transport/verbs"], "tcp": []},
            "dependencies": [{"name": "convoke-transport-rdma", "rename": "transport"}],
        });
        let transport = json!({"name": "convoke-transport-rdma", "features": {"verbs": []}});
        let packages = packages(&[package_saying(&facade), package_saying(&transport)]);
        assert_eq!(packages[0].system_features, ["verbs"]);
        assert_eq!(
            (&packages[1].features[..], &packages[1].system_features[..]),
            (&["tcp".to_owned()][..], &["rdma".to_owned()][..])
        );
    }

    #[test]
    fn a_licence_may_be_a_file_with_a_known_title() {
        let folder = std::env::temp_dir().join(format!("xtask-licence-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let licence = |title: &str| {
            std::fs::write(folder.join("LICENSE"), format!("\n{title}\n\nPermission\n"))
                .expect("written");
            let manifest = folder.join("Cargo.toml").display().to_string();
            licence_of_file(&package_saying(
                &json!({"manifest_path": manifest, "license_file": "LICENSE"}),
            ))
        };
        assert_eq!(licence("MIT License"), Some("MIT".to_owned()));
        assert_eq!(licence("Our own terms"), None);
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
