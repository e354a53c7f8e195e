//! The picture of the pages, drawn by the command that they name.

use std::process::Command;

#[test]
fn the_picture_of_the_page_is_what_the_command_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("echo.svg");
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    let output = command.args(["lanes", "--svg"]).arg(&path).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "echo: 30 ms, 20 frames\nnested: 40 ms, 32 frames\n");
    let drawn = std::fs::read_to_string(&path).expect("it was written");
    let kept = include_str!("../../../../docs/pictures/echo.svg");
    assert!(drawn == kept, "`storage lanes --svg docs/pictures/echo.svg` draws another");
}
