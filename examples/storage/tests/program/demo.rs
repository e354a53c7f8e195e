//! `storage demo` with its real processes: what it plays comes out as the paper draws it.

use std::process::Command;

use console::assert_ends_quietly_unread;

/// The scenes, each as its lines.
fn scenes() -> Vec<Vec<String>> {
    let output = Command::new(env!("CARGO_BIN_EXE_storage")).arg("demo").output();
    let output = output.expect("the demo runs");
    let text = String::from_utf8(output.stdout).expect("it is text");
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    let scenes =
        text.trim_end().split("\n\n").map(|scene| scene.lines().map(|line| line.trim().to_owned()));
    // The first says what comes, and the last what came of it.
    let mut scenes: Vec<Vec<String>> = scenes.skip(1).map(Iterator::collect).collect();
    let end = scenes.pop().expect("it ends with a sentence");
    assert!(end[0].contains("writes had a majority"), "{end:?}");
    scenes
}

fn assert_has(scene: &[String], line: &str) {
    assert!(scene.iter().any(|one| one == line), "{line:?} is none of {scene:#?}");
}

#[test]
fn the_executions_of_the_paper_come_out_as_drawn() {
    let scenes = scenes();
    let [nobody, one, majority, others @ ..] = &*scenes else { panic!("three figures") };

    assert!(nobody[0].starts_with("Figure 1"));
    assert!(nobody[1].starts_with("written after"));
    assert_has(nobody, "answered  p (n1), q (n2), r (n3)");
    assert_has(nobody, "lost      nobody");
    assert_has(nobody, "stored at p (n1), q (n2), r (n3)");

    assert!(one[0].starts_with("Figure 2"));
    assert!(one[1].starts_with("written after"));
    assert!(one[1].ends_with("by the answers of q (n2), r (n3)"));
    assert_has(one, "answered  q (n2), r (n3)");
    assert_has(one, "lost      p (n1)");
    assert_has(one, "stored at q (n2), r (n3)");

    assert!(majority[0].starts_with("Figure 3"));
    assert!(majority[1].starts_with("not written"));
    // Whichever two of the three answers decided, the error names both of the missing.
    let error = &majority[2];
    assert!(error.starts_with("a quorum is not possible any more: 0 of 3 members replied"));
    assert!(error.contains("n1") && error.contains("n2"), "{error}");
    assert!(!error.contains("deadline"), "{error}");
    assert_has(majority, "answered  nobody");
    assert_has(majority, "lost      p (n1), q (n2)");
    let refusal = "refused   r (n3): echo phase 0 (echo) has 1 of the 2 equal votes it takes among 3 \
                   members, down are n1, n2";
    assert_has(majority, refusal);
    assert_has(majority, "stored at r (n3)");

    check_stopped(others);
}

#[cfg(unix)]
fn check_stopped(scenes: &[Vec<String>]) {
    let [stopped] = scenes else { panic!("one scene: {scenes:#?}") };
    assert!(stopped[0].starts_with("SIGSTOP"));
    assert!(stopped[1].ends_with("by the answers of p (n1), q (n2), r (n3)"), "{stopped:#?}");
    assert_has(stopped, "answered  p (n1), q (n2), r (n3), s (n4)");
    assert_has(stopped, "lost      nobody");
    assert_has(stopped, "stored at p (n1), q (n2), r (n3), s (n4)");
}

#[cfg(not(unix))]
fn check_stopped(scenes: &[Vec<String>]) {
    assert!(scenes.is_empty(), "{scenes:#?}");
}

/// As `storage | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    assert_ends_quietly_unread(Command::new(env!("CARGO_BIN_EXE_storage")).arg("demo"));
}

#[test]
fn an_unknown_case_is_told_with_the_choices() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    let refused = command.args(["bench", "--only", "form=tree"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("form=echo|"), "{said}");
}
