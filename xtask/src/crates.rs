//! `cargo xtask crates`: the published crates and what each of them depends on, as lines and as a
//! picture of layers.

use std::path::PathBuf;

use anyhow::Context as _;
use cargo_metadata::DependencyKind;
use charts::Block;
use clap::Args;

use crate::published::{Published, published};
use crate::workspace::Workspace;

/// Name of all of them, without which theirs are shorter.
const PREFIX: &str = "convoke-";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also draw them to this file.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// Prints the crates, and draws them where that is asked for.
///
/// # Errors
/// `cargo metadata` fails, or the file cannot be written.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<()> {
    let blocks = blocks(&published(workspace)?);
    for block in &blocks {
        let names = |all: &[usize]| {
            let names = all.iter().map(|index| blocks[*index].name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let (on, sometimes) = (names(&block.on), names(&block.sometimes_on));
        println!("{:14}  {on:24}  {sometimes}", block.name);
    }
    if let Some(path) = &options.svg {
        let path = workspace.root().join(path);
        std::fs::write(&path, picture(&blocks)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn picture(blocks: &[Block]) -> String {
    charts::layers("Crates, each above those that it is built on", "with a feature", blocks)
}

/// Crates with those of them that they are built on; what tests alone need is left out.
fn blocks(crates: &[Published]) -> Vec<Block> {
    let block = |one: &Published| {
        let dependencies = one.manifest.dependencies.iter();
        let shipped = dependencies.filter(|one| one.kind == DependencyKind::Normal);
        let (mut on, mut sometimes_on) = (Vec::new(), Vec::new());
        for dependency in shipped {
            let index = crates.iter().position(|other| dependency.name == other.name);
            let list = if dependency.optional { &mut sometimes_on } else { &mut on };
            list.extend(index);
        }
        let name = one.name.strip_prefix(PREFIX).unwrap_or(&one.name).to_owned();
        Block { name, on, sometimes_on }
    };
    crates.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_above_what_it_ships_with() {
        let mut manifest = Published::example_manifest("convoke");
        manifest["dependencies"] = serde_json::json!([
            {"name": "convoke-a"},
            {"name": "convoke-b", "optional": true},
            {"name": "convoke-c", "kind": "dev"},
            {"name": "bytes"},
        ]);
        let others = ["convoke-a", "convoke-b", "convoke-c"].map(Published::example);
        let crates = [&[Published::saying(&manifest)][..], &others].concat();
        let first = Block { name: "convoke".into(), on: vec![1], sometimes_on: vec![2] };
        assert_eq!(blocks(&crates)[0], first);
        assert_eq!(blocks(&crates)[1], Block { name: "a".into(), ..Block::default() });
    }

    #[test]
    fn the_picture_of_the_page_is_what_the_command_draws() {
        let workspace = Workspace::find().expect("cargo runs this");
        let drawn = picture(&blocks(&published(&workspace).expect("manifests are in order")));
        let kept = workspace.read("docs/pictures/crates.svg").expect("it is committed");
        assert!(drawn == kept, "`cargo xtask crates --svg docs/pictures/crates.svg` draws another");
    }
}
