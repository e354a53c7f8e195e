//! The repository the commands work on: its folder and what cargo says is in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::features::{Declared, Dependency, needing_system};

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
        self.metadata(&["--no-deps"])
    }

    /// The packages of this repository and all they depend on, on any platform, with all features.
    ///
    /// # Errors
    /// `cargo metadata` fails, such as on a malformed manifest.
    pub(crate) fn packages(&self) -> anyhow::Result<Vec<Package>> {
        self.metadata(&["--all-features"])
    }

    /// The folder that cargo builds into.
    ///
    /// # Errors
    /// `cargo metadata` fails, such as on a malformed manifest.
    pub(crate) fn target(&self) -> anyhow::Result<PathBuf> {
        let metadata =
            self.output_of("cargo", &["metadata", "--format-version", "1", "--no-deps"])?;
        let metadata: Value =
            serde_json::from_slice(&metadata).context("reading cargo metadata")?;
        let target = metadata["target_directory"].as_str();
        Ok(PathBuf::from(target.context("cargo metadata has no target folder")?))
    }

    fn metadata(&self, options: &[&str]) -> anyhow::Result<Vec<Package>> {
        let arguments = [&["metadata", "--format-version", "1"], options].concat();
        packages_of(&self.output_of("cargo", &arguments)?)
    }
}

/// The packages in the output of `cargo metadata`, sorted by name.
fn packages_of(metadata: &[u8]) -> anyhow::Result<Vec<Package>> {
    let metadata: Value = serde_json::from_slice(metadata).context("reading cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let needing = needing_system(&packages.iter().map(declared).collect::<Vec<_>>());
    let package = |package| package_of(package, &needing);
    let mut packages = packages.iter().map(package).collect::<anyhow::Result<Vec<_>>>()?;
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(packages)
}

fn package_of(package: &Value, needing: &BTreeSet<(String, String)>) -> anyhow::Result<Package> {
    let text = |key: &str| package[key].as_str().map(str::to_owned);
    let name = text("name").context("a package in cargo metadata has no name")?;
    let features = package["features"].as_object().into_iter().flatten().map(|(name, _)| name);
    let (system_features, features) =
        features.cloned().partition(|feature| needing.contains(&(name.clone(), feature.clone())));
    Ok(Package {
        version: text("version").context("a package in cargo metadata has no version")?,
        licence: text("license").or_else(|| licence_of_file(package)),
        features,
        system_features,
        name,
    })
}

/// The licence of a package that names a file instead: by its title, which is all that we need to
/// know; cargo-deny compares the rest of the text.
fn licence_of_file(package: &Value) -> Option<String> {
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
    let text = std::fs::read_to_string(folder.join(package["license_file"].as_str()?)).ok()?;
    let known = [("MIT License", "MIT"), ("Apache License", "Apache-2.0")];
    let title = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    known.iter().find(|(name, _)| *name == title).map(|(_, licence)| (*licence).to_owned())
}

/// Reads what a package says of its features and of those it turns on elsewhere.
fn declared(package: &Value) -> Declared {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let dependency = |value: &Value| Dependency {
        alias: text(if value["rename"].is_string() { &value["rename"] } else { &value["name"] }),
        package: text(&value["name"]),
        features: texts(&value["features"]),
    };
    let features = package["features"].as_object().into_iter().flatten();
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Declared {
        package: text(&package["name"]),
        table: features.map(|(name, on)| (name.clone(), texts(on))).collect(),
        dependencies: dependencies.map(dependency).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_with_features_and_licence() {
        let metadata = br#"{"packages": [
            {"name": "b", "version": "2.0.0", "license": null, "features": {}},
            {"name": "a", "version": "1.0.0", "license": "MIT",
             "features": {"default": ["x"], "x": []}}
        ]}"#;
        let [a, b] = &packages_of(metadata).expect("well-formed")[..] else {
            panic!("two packages were given");
        };
        assert_eq!((a.name.as_str(), a.licence.as_deref()), ("a", Some("MIT")));
        assert_eq!(a.features, ["default", "x"]);
        assert_eq!((b.licence.as_deref(), b.features.len()), (None, 0));
    }

    #[test]
    fn features_that_need_the_system_are_told_apart() {
        let metadata = br#"{"packages": [
            {"name": "facade", "version": "1.0.0", "features": {"rdma": ["transport/verbs"], "tcp": []},
             "dependencies": [{"name": "convoke-transport-rdma", "rename": "transport"}]},
            {"name": "convoke-transport-rdma", "version": "1.0.0", "features": {"verbs": []}}
        ]}"#;
        let packages = packages_of(metadata).expect("well-formed");
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
            licence_of_file(
                &serde_json::json!({"manifest_path": manifest, "license_file": "LICENSE"}),
            )
        };
        assert_eq!(licence("MIT License"), Some("MIT".to_owned()));
        assert_eq!(licence("Our own terms"), None);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn output_that_is_not_metadata_is_an_error() {
        assert!(packages_of(b"{}").is_err());
        assert!(packages_of(b"warning: something").is_err());
    }
}
