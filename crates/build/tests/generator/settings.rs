//! Changes that each setting of the builder makes in the output.

use std::fs;
use std::path::Path;

use convoke_build::prost_build::{Service, ServiceGenerator};
use convoke_build::{Builder, configure};
use prost_reflect::{DescriptorPool, Value};

/// `social.rs` as generated with these settings, into `out`.
fn social(out: &Path, set: impl FnOnce(Builder) -> Builder) -> String {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    set(configure().out_dir(out).emit_rerun_if_changed(false))
        .compile_protos(&["graph.proto"], &[testdata])
        .unwrap();
    fs::read_to_string(out.join("social.rs")).unwrap()
}

#[test]
fn convoke_may_be_elsewhere() {
    let out = tempfile::tempdir().unwrap();
    let code = social(out.path(), |builder| builder.convoke_path("::other::rpc"));
    assert!(code.contains("::other::rpc::Service::with_arc("));
    assert!(!code.contains("::convoke::"), "{code}");
}

#[test]
fn convoke_may_be_elsewhere_for_configurations_too() {
    let out = tempfile::tempdir().unwrap();
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let builder = configure().out_dir(out.path()).emit_rerun_if_changed(false);
    let builder =
        builder.convoke_path("crate::rpc").extern_path(".replicated.Entry", "crate::Entry");
    builder.compile_protos(&["storage.proto"], &[testdata]).unwrap();
    let code = fs::read_to_string(out.path().join("replicated.rs")).unwrap();
    assert!(code.contains("crate::rpc::requires_quorum!();"), "{code}");
    assert!(code.contains("-> crate::rpc::quorum::QuorumBuilder<crate::Entry>"), "{code}");
    assert!(!code.contains("::convoke::"), "{code}");
}

#[test]
fn messages_may_come_from_another_crate() {
    let out = tempfile::tempdir().unwrap();
    let code = social(out.path(), |builder| builder.extern_path(".social.Change", "crate::Change"));
    assert!(!code.contains("pub struct Change"), "{code}");
    assert!(code.contains("pub const BEFRIEND: ::convoke::Method<crate::Change, ()>"), "{code}");
    assert!(code.contains("fn befriend(&self, request: crate::Change)"), "{code}");
}

#[test]
fn attributes_are_passed_on() {
    let out = tempfile::tempdir().unwrap();
    let code = social(out.path(), |builder| {
        builder
            .type_attribute(".social.Change", "#[derive(PartialOrd)]")
            .field_attribute(".social.Change.to", "#[doc(alias = \"target\")]")
            .prost(|config| {
                config.btree_map(["nothing"]);
            })
    });
    assert_eq!(code.matches("#[derive(PartialOrd)]").count(), 1);
    assert_eq!(code.matches("#[doc(alias = \"target\")]").count(), 1);
    assert!(code.contains("::std::collections::HashMap"), "prost's own default");
}

#[test]
fn an_attribute_that_is_none_is_an_error() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let out = tempfile::tempdir().unwrap();
    let error = configure()
        .out_dir(out.path())
        .emit_rerun_if_changed(false)
        .type_attribute(".", "#[derive(")
        .compile_protos(&["graph.proto"], &[testdata])
        .unwrap_err();
    assert!(error.to_string().starts_with("cannot generate messages: an attribute"), "{error}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn the_descriptor_set_keeps_the_options() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("social.bin");
    social(out.path(), |builder| builder.file_descriptor_set_path(&path));
    let pool = DescriptorPool::decode(fs::read(&path).unwrap().as_slice()).unwrap();
    let tree = pool.get_extension_by_name("convoke.tree").unwrap();
    let service = pool.get_service_by_name("social.Graph").unwrap();
    let is_tree = |name| {
        let method = service.methods().find(|method| method.name() == name).unwrap();
        method.options().get_extension(&tree).into_owned()
    };
    assert_eq!(is_tree("Home"), Value::Bool(true));
    assert_eq!(is_tree("Profile"), Value::Bool(false));
}

#[test]
fn another_generator_sees_every_service() {
    struct Names;

    impl ServiceGenerator for Names {
        fn generate(&mut self, service: Service, buf: &mut String) {
            buf.push_str(&format!("pub struct Seen{};", service.name));
        }

        fn finalize_package(&mut self, package: &str, buf: &mut String) {
            buf.push_str(&format!("pub const PACKAGE: &str = \"{package}\";"));
        }
    }

    let out = tempfile::tempdir().unwrap();
    let code = social(out.path(), |builder| builder.also(Box::new(Names)));
    for part in ["SeenGraph;", "SeenLog;", "pub const PACKAGE: &str = \"social\";", "GraphServer"] {
        assert!(code.contains(part), "{part}");
    }
}

#[test]
fn the_embedded_options_are_the_published_ones() {
    for option in [
        "bool tree = 50801",
        "bool ordered = 50802",
        "bool read_only = 50803",
        "bool idempotent = 50804",
        "bool quorum = 50805",
        "bool multicast = 50806",
        "uint32 echo_phases = 50807",
    ] {
        assert!(convoke_build::OPTIONS_PROTO.contains(option), "{option} is on people's disks");
    }
}

#[test]
fn characters_that_turn_text_are_left_out_of_comments() {
    let folder = tempfile::tempdir().unwrap();
    let proto = "syntax = \"proto3\"; package p;\n// A \u{202e}right\u{2066} comment.\n\
                 message M { uint64 n = 1; /* and \u{202a}here */ }\n\
                 // Of \u{2069}S.\nservice S {\n  // Of \u{202c}A.\n  rpc A(M) returns (M); }";
    fs::write(folder.path().join("a.proto"), proto).unwrap();
    let builder = configure().out_dir(folder.path()).emit_rerun_if_changed(false);
    builder.compile_protos(&["a.proto"], &[folder.path()]).unwrap();
    let code = fs::read_to_string(folder.path().join("p.rs")).unwrap();
    let is_turn = |c: char| ('\u{202a}'..='\u{2069}').contains(&c);
    assert!(!code.contains(is_turn), "{code}");
    for said in ["A right comment.", "Of S.", "Of A."] {
        assert!(code.contains(said), "{said}: {code}");
    }
}
