//! The generated code of the files in `testdata`, as it is checked in. After a change that is
//! meant, `CONVOKE_BLESS=1 cargo test -p convoke-build --test generator golden` writes it anew.

use std::path::{Path, PathBuf};
use std::{env, fs};

use convoke_build::{Builder, configure};

#[test]
fn the_generated_code_is_the_one_checked_in() {
    for (proto, output) in [
        ("graph.proto", "social.rs"),
        ("storage.proto", "replicated.rs"),
        ("names.proto", "names.rs"),
    ] {
        check(proto, output);
    }
}

#[test]
fn the_file_that_includes_it_is_the_one_checked_in() {
    let folder = tempfile::tempdir().unwrap();
    generate(configure().include_file("all.rs"), "names.proto", folder.path());
    compare(folder.path(), "all.rs");
}

fn check(proto: &str, output: &str) {
    let folder = tempfile::tempdir().unwrap();
    generate(configure(), proto, folder.path());
    let files: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|x| x.unwrap().file_name()).collect();
    assert_eq!(files, [output], "nothing is generated for the imports");
    compare(folder.path(), output);
}

fn generate(builder: Builder, proto: &str, folder: &Path) {
    let testdata = testdata();
    let builder = builder.out_dir(folder).emit_rerun_if_changed(false);
    builder.compile_protos(&[testdata.join(proto)], &[&testdata]).unwrap();
}

/// Compares a file of this folder with the one checked in.
fn compare(folder: &Path, output: &str) {
    let generated = fs::read_to_string(folder.join(output)).unwrap();
    let expected = testdata().join(output);
    if env::var_os("CONVOKE_BLESS").is_some() {
        fs::write(&expected, &generated).unwrap();
    }
    let expected = fs::read_to_string(&expected).unwrap().replace("\r\n", "\n");
    assert!(generated == expected, "bless it if this is meant:\n{generated}");
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}
