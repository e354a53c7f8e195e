//! The picture of the page of benchmarks, drawn by the command that it names.

use std::path::Path;
use std::process::Command;

#[test]
fn the_picture_of_the_page_is_what_the_command_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rivals.svg");
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/rows.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.arg("draw").arg(&rows).arg("--svg").arg(&path);
    for bench in ["unary", "hops_5_32", "quorum"] {
        command.args(["--only", bench]);
    }
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drawn = std::fs::read_to_string(&path).expect("it was written");
    let kept = include_str!("../../../../docs/pictures/rivals.svg");
    assert!(drawn == kept, "`compare draw` draws another: see docs/benchmarks.md");
}
