//! Features that build anywhere, and those that need something installed that is not Rust.
//!
//! `--all-features` would turn on the latter, too; the lanes name every other feature instead.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{Package, Workspace};

/// Features that link or bind a library of the system, with their packages. What turns one of
/// them on needs the library as well, and is found by itself.
pub(crate) const NEED_SYSTEM: [(&str, &str); 1] = [("convoke-transport-rdma", "verbs")];

/// A package's features, each with what it turns on, as manifests write it.
pub(crate) type Table = BTreeMap<String, Vec<String>>;

/// A dependency and what of it is turned on wherever it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// As the package calls it, which manifests may change.
    pub(crate) alias: String,
    pub(crate) package: String,
    pub(crate) features: Vec<String>,
}

/// All that is known of the features of one package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) package: String,
    pub(crate) table: Table,
    pub(crate) dependencies: Vec<Dependency>,
}

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
pub(crate) fn needing_system(declared: &[Declared]) -> BTreeSet<(String, String)> {
    let mut needing: BTreeSet<_> = NEED_SYSTEM
        .iter()
        .map(|(package, name)| ((*package).to_owned(), (*name).to_owned()))
        .collect();
    loop {
        let before = needing.len();
        for one in declared {
            let found: Vec<_> = one
                .table
                .iter()
                .filter(|(_, on)| {
                    on.iter()
                        .any(|what| one.turned_on(what).any(|feature| needing.contains(&feature)))
                })
                .map(|(name, _)| (one.package.clone(), name.clone()))
                .collect();
            needing.extend(found);
        }
        if needing.len() == before {
            return needing;
        }
    }
}

impl Declared {
    /// The features that an entry turns on: `feature`, `dep:crate`, `crate/feature`,
    /// `crate?/feature`.
    fn turned_on(&self, entry: &str) -> impl Iterator<Item = (String, String)> {
        let of = |alias: &str| {
            let alias = alias.trim_end_matches('?').to_owned();
            self.dependencies.iter().filter(move |dependency| dependency.alias == alias)
        };
        let (alias, feature) = match entry.split_once('/') {
            Some((alias, feature)) => (alias, Some(feature)),
            None => (entry.strip_prefix("dep:").unwrap_or(entry), None),
        };
        let own = (self.package.clone(), entry.to_owned());
        let named = of(alias)
            .filter_map(move |dependency| Some((dependency.package.clone(), feature?.to_owned())));
        let always = of(alias).flat_map(|dependency| {
            dependency.features.iter().map(|feature| (dependency.package.clone(), feature.clone()))
        });
        std::iter::once(own).chain(named).chain(always).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(
        package: &str,
        table: &[(&str, &[&str])],
        dependencies: &[(&str, &str, &[&str])],
    ) -> Declared {
        let owned = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        Declared {
            package: package.to_owned(),
            table: table.iter().map(|(name, on)| ((*name).to_owned(), owned(on))).collect(),
            dependencies: dependencies
                .iter()
                .map(|(alias, package, features)| Dependency {
                    alias: (*alias).to_owned(),
                    package: (*package).to_owned(),
                    features: owned(features),
                })
                .collect(),
        }
    }

    /// The features of this package that need the system, beside the transport's own.
    fn needing(one: Declared) -> Vec<String> {
        let rdma =
            declared("convoke-transport-rdma", &[("verbs", &["dep:sys"]), ("sim", &[])], &[]);
        let name = one.package.clone();
        let all = needing_system(&[one, rdma]);
        all.into_iter()
            .filter(|(package, _)| *package == name)
            .map(|(_, feature)| feature)
            .collect()
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
        let table: [(&str, &[&str]); 5] = [
            ("default", &["tcp"]),
            ("far", &["near"]),
            ("near", &["tcp", "transport/verbs"]),
            ("sim", &["transport?/sim"]),
            ("weak", &["transport?/verbs"]),
        ];
        let one = declared("convoke", &table, &[("transport", TRANSPORT, &[])]);
        assert_eq!(needing(one), ["far", "near", "weak"]);
    }

    #[test]
    fn a_dependency_may_bring_it_by_itself() {
        let table: [(&str, &[&str]); 2] = [("rdma", &["dep:transport"]), ("tcp", &[])];
        let one = declared("convoke", &table, &[("transport", TRANSPORT, &["verbs"])]);
        assert_eq!(needing(one), ["rdma"]);
    }

    #[test]
    fn a_feature_of_the_same_name_elsewhere_does_not() {
        let table: [(&str, &[&str]); 2] = [("verbs", &["other/verbs"]), ("x", &["verbs"])];
        assert_eq!(needing(declared("words", &table, &[("other", "other", &[])])), [""; 0]);
    }
}
