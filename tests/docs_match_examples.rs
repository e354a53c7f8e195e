//! The code of the guides is code that runs: every Rust block of `docs/` is a part of some program
//! in `examples/`, whose tests run it.

use std::fs;
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Its blocks belong to a build script and to generated code; the tests of `convoke-build` have
/// their like.
const EXCEPT: &str = "codegen.md";

#[test]
fn every_block_of_a_guide_is_part_of_an_example() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs: Vec<String> = files(&root.join("examples"), "rs")?
        .iter()
        .map(|path| code(path))
        .collect::<Result<_>>()?;
    let mut count = 0;
    for guide in files(&root.join("docs"), "md")? {
        if guide.ends_with(EXCEPT) {
            continue;
        }
        for block in rust_blocks(&fs::read_to_string(&guide)?) {
            count += 1;
            let is_known = programs.iter().any(|program| program.contains(&block));
            assert!(is_known, "{}: no example has this:\n{block}", guide.display());
        }
    }
    assert!(count > 20, "only {count} blocks were found");
    Ok(())
}

/// All files below `folder` that end so.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn code(path: &Path) -> Result<String> {
    Ok(squeeze(&fs::read_to_string(path)?))
}

/// Without indentation and empty lines, which differ between a page and a program.
fn squeeze(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

fn rust_blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut rest) = (Vec::new(), page);
    while let Some((_, from)) = rest.split_once("```rust\n") {
        let (block, behind) = from.split_once("```").unwrap_or((from, ""));
        blocks.push(squeeze(block));
        rest = behind;
    }
    blocks
}

#[test]
fn blocks_are_found_whatever_is_around_them() {
    let page =
        "text\n```rust\n  let a = 1;\n\n    let b = 2;\n```\n```sh\nls\n```\n```rust\nc();\n```\n";
    assert_eq!(rust_blocks(page), ["let a = 1;\nlet b = 2;\n", "c();\n"]);
}
