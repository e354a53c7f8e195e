//! The crates that are published, with all that their manifests say to a registry.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use crate::workspace::{Package, Workspace, packages};

/// A crate that is published.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) name: String,
    /// The folder of its manifest.
    pub(crate) folder: PathBuf,
    /// Features that build anywhere, without `default`.
    pub(crate) features: Vec<String>,
    /// Features that need something of the system.
    pub(crate) system_features: Vec<String>,
    /// The patterns of files that are packaged.
    pub(crate) include: Vec<String>,
    /// The package as `cargo metadata` has it.
    pub(crate) manifest: cargo_metadata::Package,
}

/// The crates of this repository that are published, by name.
///
/// # Errors
/// `cargo metadata` fails, or a manifest cannot be read.
pub(crate) fn published(workspace: &Workspace) -> anyhow::Result<Vec<Published>> {
    let manifests = workspace.metadata()?.packages;
    let members = packages(&manifests);
    // An empty list of registries is how cargo says `publish = false`.
    let is_published = |manifest: &cargo_metadata::Package| manifest.publish.is_none();
    let mut crates = Vec::new();
    for manifest in manifests.into_iter().filter(is_published) {
        let member = members.iter().find(|member| manifest.name == member.name);
        crates.push(of_manifest(member.context("no such member")?, manifest)?);
    }
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn of_manifest(member: &Package, manifest: cargo_metadata::Package) -> anyhow::Result<Published> {
    let path = manifest.manifest_path.as_std_path();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the manifest of {}", member.name))?;
    let features = member.features.iter().filter(|feature| *feature != "default");
    Ok(Published {
        name: member.name.clone(),
        folder: path.parent().context("a manifest has no folder")?.to_owned(),
        features: features.cloned().collect(),
        system_features: member.system_features.clone(),
        include: include_of(&text).with_context(|| format!("the manifest of {}", member.name))?,
        manifest,
    })
}

/// The list `package.include`; empty when there is none.
fn include_of(manifest: &str) -> anyhow::Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse()?;
    let list = manifest.get("package").and_then(|package| package.get("include"));
    let patterns = list.and_then(toml::Value::as_array).into_iter().flatten();
    Ok(patterns.filter_map(|pattern| pattern.as_str().map(str::to_owned)).collect())
}

impl Published {
    /// Complaints about what its manifest says to a registry and to docs.rs.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let manifest = &self.manifest;
        for (key, text) in [
            ("description", manifest.description.as_deref()),
            ("license", manifest.license.as_deref()),
            ("readme", manifest.readme.as_ref().map(|path| path.as_str())),
            ("documentation", manifest.documentation.as_deref()),
        ] {
            if text.is_none_or(str::is_empty) {
                complaints.push(format!("its manifest has no `{key}`"));
            }
        }
        for (key, words) in [("keywords", &manifest.keywords), ("categories", &manifest.categories)]
        {
            let count = words.len();
            if !(1..=5).contains(&count) {
                complaints.push(format!("{count} {key}, and a registry takes 1 to 5"));
            }
        }
        complaints.extend(self.of_documentation());
        complaints
    }

    /// docs.rs shows every feature that users turn on and that needs nothing of the system.
    fn of_documentation(&self) -> Option<String> {
        let settings = &self.manifest.metadata["docs"]["rs"];
        let list = |key: &str| settings[key].as_array().map(Vec::as_slice).unwrap_or_default();
        if list("rustdoc-args") != ["--cfg", "docsrs"] {
            return Some(
                "its settings for docs.rs do not say `rustdoc-args = [\"--cfg\", \"docsrs\"]`"
                    .to_owned(),
            );
        }
        let expected: Vec<_> =
            self.features.iter().filter(|feature| *feature != FOR_OUR_TESTS).collect();
        let shows_all = settings["all-features"] == true;
        if shows_all && !self.system_features.is_empty() {
            let named = self.system_features.join(", ");
            return Some(format!("docs.rs has no system package for `{named}`"));
        }
        let mut shown: Vec<_> = list("features").iter().filter_map(Value::as_str).collect();
        if shows_all {
            shown = self.features.iter().map(String::as_str).collect();
        }
        (shown != expected).then(|| format!("docs.rs is to show {expected:?}, and shows {shown:?}"))
    }
}

/// The feature of deliberate defects. Nobody else is to see it.
const FOR_OUR_TESTS: &str = "mutants";

#[cfg(test)]
impl Published {
    /// A crate about which there is nothing to complain.
    pub(crate) fn example(name: &str) -> Self {
        Self::saying(&Self::example_manifest(name))
    }

    /// The words of cargo about such a crate.
    pub(crate) fn example_manifest(name: &str) -> Value {
        let settings = serde_json::json!({
            "all-features": true, "rustdoc-args": ["--cfg", "docsrs"]
        });
        serde_json::json!({
            "name": name, "description": "d", "license": "MIT", "readme": "README.md",
            "documentation": "u", "keywords": ["k"], "categories": ["c"],
            "metadata": {"docs": {"rs": settings}}
        })
    }

    /// A crate of which cargo says this.
    pub(crate) fn saying(manifest: &Value) -> Self {
        let manifest = crate::workspace::package_saying(manifest);
        Self {
            name: manifest.name.to_string(),
            folder: PathBuf::new(),
            features: vec!["a".to_owned(), "b".to_owned()],
            system_features: Vec::new(),
            include: Vec::new(),
            manifest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(one: &Published) -> String {
        one.complaints().join("; ")
    }

    #[test]
    fn a_whole_manifest_is_fine() {
        assert_eq!(complaint(&Published::example("x")), "");
    }

    #[test]
    fn each_thing_a_registry_shows_is_asked_for() {
        for key in ["description", "license", "readme", "documentation", "keywords", "categories"] {
            let mut manifest = Published::example_manifest("x");
            manifest.as_object_mut().expect("an object").remove(key);
            let complaint = complaint(&Published::saying(&manifest));
            assert!(complaint.contains(key), "{key}: {complaint}");
        }
        let mut one = Published::example("x");
        one.manifest.keywords = vec!["k".to_owned(); 6];
        assert!(complaint(&one).contains("6 keywords"));
    }

    #[test]
    fn the_documentation_shows_what_users_turn_on() {
        let mut one = Published::example("x");
        one.features.push("mutants".to_owned());
        assert!(complaint(&one).contains("shows [\"a\", \"b\", \"mutants\"]"));
        let settings = serde_json::json!({
            "features": ["a", "b"], "rustdoc-args": ["--cfg", "docsrs"]
        });
        one.manifest.metadata["docs"]["rs"] = settings;
        assert_eq!(complaint(&one), "");
        one.features.push("new".to_owned());
        assert!(complaint(&one).contains("is to show [\"a\", \"b\", \"new\"]"));
    }

    #[test]
    fn the_documentation_needs_nothing_of_the_system() {
        let system_features = vec!["verbs".to_owned()];
        let one = Published { system_features, ..Published::example("x") };
        assert!(complaint(&one).contains("verbs"));
        let mut one = Published::example("x");
        one.manifest.metadata = Value::Null;
        assert!(complaint(&one).contains("rustdoc-args"));
    }

    #[test]
    fn the_list_of_files_is_read_from_the_manifest() {
        let include = include_of("[package]\ninclude = [\"/src\", \"/README.md\"]");
        assert_eq!(include.expect("well-formed"), ["/src", "/README.md"]);
        assert!(include_of("[package]\nname = \"x\"").expect("well-formed").is_empty());
        assert!(include_of("[package").is_err());
    }
}
