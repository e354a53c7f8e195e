//! Features that build anywhere, and those that need something installed that is not Rust.
//!
//! `--all-features` would turn on the latter, too; the lanes name every other feature instead.

use std::collections::BTreeSet;

use cargo_metadata::Dependency;

use crate::workspace::{Package, Workspace};

/// Features that link or bind a library of the system, with their packages. What turns one of
/// them on needs the library as well, and is found by itself.
pub(crate) const NEED_SYSTEM: [(&str, &str); 1] = [("convoke-transport-rdma", "verbs")];

/// Turns on every feature that builds anywhere, of all packages of the workspace.
///
/// # Errors
/// `cargo metadata` fails.
pub(crate) fn all_portable(workspace: &Workspace) -> anyhow::Result<[String; 2]> {
    Ok(["--features".to_owned(), portable(&workspace.members()?)])
}

/// The features of these packages as one argument of cargo; `default` is on already.
fn portable(members: &[Package]) -> String {
    let of = |package: &Package| {
        let names = package.features.iter().filter(|feature| *feature != "default");
        names.map(|feature| format!("{}/{feature}", package.name)).collect::<Vec<_>>()
    };
    members.iter().flat_map(of).collect::<Vec<_>>().join(",")
}

/// The features, as (package, feature), that need something of the system.
pub(crate) fn needing_system(packages: &[cargo_metadata::Package]) -> BTreeSet<(String, String)> {
    let mut needing: BTreeSet<_> = NEED_SYSTEM
        .iter()
        .map(|(package, name)| ((*package).to_owned(), (*name).to_owned()))
        .collect();
    loop {
        let before = needing.len();
        for package in packages {
            let needs = |entry: &String| {
                turned_on(package, entry).iter().any(|feature| needing.contains(feature))
            };
            let found: Vec<_> = package
                .features
                .iter()
                .filter(|(_, entries)| entries.iter().any(needs))
                .map(|(name, _)| (package.name.to_string(), name.clone()))
                .collect();
            needing.extend(found);
        }
        if needing.len() == before {
            return needing;
        }
    }
}

/// The features that an entry of a package's feature turns on: `feature`, `dep:crate`,
/// `crate/feature`, `crate?/feature`.
fn turned_on(package: &cargo_metadata::Package, entry: &str) -> Vec<(String, String)> {
    let (alias, feature) = match entry.split_once('/') {
        Some((alias, feature)) => (alias.trim_end_matches('?'), Some(feature)),
        None => (entry.strip_prefix("dep:").unwrap_or(entry), None),
    };
    let mut turned_on = vec![(package.name.to_string(), entry.to_owned())];
    // Manifests may call a dependency by another name.
    let is_meant = |one: &&Dependency| one.rename.as_ref().unwrap_or(&one.name) == alias;
    for dependency in package.dependencies.iter().filter(is_meant) {
        let always = dependency.features.iter().map(String::as_str);
        let features = feature.into_iter().chain(always);
        turned_on.extend(features.map(|feature| (dependency.name.clone(), feature.to_owned())));
    }
    turned_on
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workspace::package_saying;

    /// The features of this package that need the system, beside the transport's own.
    fn needing(package: &serde_json::Value) -> Vec<String> {
        let transport = json!({"name": TRANSPORT, "features": {"verbs": ["dep:sys"], "sim": []}});
        let packages = [package_saying(package), package_saying(&transport)];
        let needing = needing_system(&packages).into_iter();
        let own = needing.filter(|(name, _)| packages[0].name == *name);
        own.map(|(_, feature)| feature).collect()
    }

    #[test]
    fn every_portable_feature_is_named_with_its_package() {
        let package = |name: &str, features: &[&str]| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: None,
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
            system_features: vec!["verbs".to_owned()],
        };
        let members =
            [package("a", &["default", "x", "y"]), package("b", &[]), package("c", &["z"])];
        assert_eq!(portable(&members), "a/x,a/y,c/z");
    }

    const TRANSPORT: &str = "convoke-transport-rdma";

    #[test]
    fn what_turns_it_on_needs_the_system_too_however_far_away() {
        let package = json!({
            "features": {
                "default": ["tcp"],
                "far": ["near"],
                "near": ["tcp", "transport/verbs"],
                "sim": ["transport?/sim"],
                "tcp": [],
                "weak": ["transport?/verbs"],
            },
            "dependencies": [{"name": TRANSPORT, "rename": "transport"}],
        });
        assert_eq!(needing(&package), ["far", "near", "weak"]);
    }

    #[test]
    fn a_dependency_may_bring_it_by_itself() {
        let package = json!({
            "features": {"rdma": ["dep:transport"], "tcp": []},
            "dependencies": [{"name": TRANSPORT, "rename": "transport", "features": ["verbs"]}],
        });
        assert_eq!(needing(&package), ["rdma"]);
    }

    #[test]
    fn a_feature_of_the_same_name_elsewhere_does_not() {
        let package = json!({
            "features": {"verbs": ["other/verbs"], "x": ["verbs"]},
            "dependencies": [{"name": "other"}],
        });
        assert_eq!(needing(&package), [""; 0]);
    }
}
