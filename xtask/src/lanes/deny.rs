//! Lane `deny`: cargo-deny, when it is installed, on licences, banned crates and sources.

use crate::lanes::Plan;
use crate::step::Step;
use crate::workspace::Workspace;

/// Plans the check.
///
/// # Errors
/// None; a missing tool is a reason to skip.
pub(super) fn plan(workspace: &Workspace) -> anyhow::Result<Plan> {
    let is_installed = workspace.output_of("cargo", &["deny", "--version"]).is_ok();
    Ok(if is_installed {
        Plan::Run(vec![Step::cargo(["deny", "check", "licenses", "bans", "sources"])])
    } else {
        Plan::Skip("cargo-deny is missing: `cargo install --locked cargo-deny`".to_owned())
    })
}
