//! The generated code of the files in `testdata`, as it is checked in. After a change that is
//! meant, `CONVOKE_BLESS=1 cargo test -p convoke-build --test generator golden` writes it anew.

use std::path::Path;
use std::{env, fs};

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

fn check(proto: &str, output: &str) {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let folder = tempfile::tempdir().unwrap();
    convoke_build::configure()
        .out_dir(folder.path())
        .emit_rerun_if_changed(false)
        .compile_protos(&[testdata.join(proto)], &[&testdata])
        .unwrap();

    let files: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|x| x.unwrap().file_name()).collect();
    assert_eq!(files, [output], "nothing is generated for the imports");
    let generated = fs::read_to_string(folder.path().join(output)).unwrap();
    let expected = testdata.join(output);
    if env::var_os("CONVOKE_BLESS").is_some() {
        fs::write(&expected, &generated).unwrap();
    }
    let expected = fs::read_to_string(&expected).unwrap().replace("\r\n", "\n");
    assert!(generated == expected, "bless it if this is meant:\n{generated}");
}
