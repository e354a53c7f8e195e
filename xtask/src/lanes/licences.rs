//! Lane `licences`: every dependency can be used under licences that `deny.toml` allows.
//!
//! This lane checks what cargo-deny checks too, but needs no tool, so it always runs.

use crate::lanes::Plan;
use crate::licences::{Allowed, Expression};
use crate::workspace::{Package, Workspace};

/// Looks at all packages.
///
/// # Errors
/// `deny.toml` has no list of licences, or `cargo metadata` fails.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let allowed = Allowed::from_deny_toml(&workspace.read("deny.toml")?)?;
    let packages = workspace.packages()?;
    Ok(Plan::Found(packages.iter().filter_map(|package| complaint(&allowed, package)).collect()))
}

fn complaint(allowed: &Allowed, package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    let Some(licence) = &package.licence else {
        return Some(format!("{name}: declares no licence"));
    };
    match licence.parse::<Expression>() {
        Ok(expression) if allowed.satisfies(&expression) => None,
        Ok(_) => Some(format!("{name}: `licenses.allow` in deny.toml does not cover `{licence}`")),
        Err(error) => Some(format!("{name}: `{licence}` is no licence expression: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint_on(licence: Option<&str>) -> Option<String> {
        let allowed = Allowed::from_deny_toml("licenses.allow = ['MIT']").expect("well-formed");
        let package = Package {
            name: "some".to_owned(),
            version: "1.2.3".to_owned(),
            licence: licence.map(str::to_owned),
            features: Vec::new(),
            system_features: Vec::new(),
        };
        complaint(&allowed, &package)
    }

    #[test]
    fn a_package_under_an_allowed_licence_is_fine() {
        assert_eq!(complaint_on(Some("MIT OR Apache-2.0")), None);
    }

    #[test]
    fn every_other_package_is_named_with_the_reason() {
        for (licence, reason) in [
            (None, "declares no licence"),
            (Some("GPL-3.0"), "does not cover `GPL-3.0`"),
            (Some("MIT AND"), "no licence expression"),
        ] {
            let complaint = complaint_on(licence).expect("a complaint");
            assert!(complaint.starts_with("some 1.2.3: "), "{complaint}");
            assert!(complaint.contains(reason), "{complaint}");
        }
    }
}
