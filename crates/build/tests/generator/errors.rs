//! Errors of the generator for files it cannot use: the place, the subject, what to do.

use std::fs;
use std::path::Path;

use convoke_build::Error;

/// The result of compiling these files, of which the first is asked for.
fn compile(files: &[(&str, &str)]) -> Result<Vec<String>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let (protos, out) = (folder.path().join("proto"), folder.path().join("out"));
    fs::create_dir_all(&out).unwrap();
    for (name, text) in files {
        let path = protos.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    convoke_build::configure()
        .out_dir(&out)
        .include_file("all.rs")
        .emit_rerun_if_changed(false)
        .compile_protos(&[protos.join(files[0].0)], &[&protos])
        .map_err(|error| relative(error, &protos))?;
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    Ok(names)
}

/// The error with places below the scratch folder.
fn relative(error: Error, folder: &Path) -> Error {
    let cut = |text: String| {
        text.replace(&format!("{}{}", folder.display(), std::path::MAIN_SEPARATOR), "")
    };
    match error {
        Error::Proto { message } => Error::Proto { message: cut(message) },
        Error::Options { place, subject, message } => {
            Error::Options { place: cut(place), subject, message }
        }
        other => other,
    }
}

/// Error for a file with this body.
fn complaint(body: &str) -> String {
    let head =
        "syntax = \"proto3\";\npackage p;\nimport \"convoke/options.proto\";\nmessage M {}\n";
    let error = compile(&[("a.proto", &format!("{head}{body}"))]).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string(), "a build script prints `Debug`");
    error.to_string()
}

#[test]
fn a_syntax_error_has_file_line_and_column() {
    let said = complaint("message N {\n  uint64 = 1;\n}");
    assert!(said.starts_with("a.proto:6:10: expected"), "{said}");
}

#[test]
fn a_file_that_ends_too_early_has_its_last_line() {
    for (body, place) in [("message N {\n  uint64 n = 1;\n", "6:16"), ("message N", "5:10")] {
        let said = complaint(body);
        let expected = format!("a.proto:{place}: expected ");
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.ends_with(", but reached end of file"), "{said}");
    }
}

#[test]
fn a_defect_without_a_place_has_its_file() {
    assert_eq!(complaint("package q;"), "a.proto: multiple package names specified");
}

#[test]
fn a_defect_of_the_whole_file_names_it_once() {
    let importing = "syntax = \"proto3\"; import \"a.proto\";";
    let said = compile(&[("a.proto", importing)]).unwrap_err().to_string();
    assert_eq!(said, "import cycle detected: a.proto -> a.proto");
}

#[test]
fn an_unknown_type_has_file_line_and_column() {
    let said = complaint("message N { Nothing x = 1; }");
    assert!(said.starts_with("a.proto:5:13: name 'Nothing' is not defined"), "{said}");
}

#[test]
fn a_missing_file_is_said_to_be_missing() {
    let error = convoke_build::compile_protos(&["no/such.proto"], &["no", "other"]).unwrap_err();
    let expected = "no/such.proto does not exist, nor in any of the include folders (no, other)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_missing_import_names_who_imports_it() {
    let said = complaint("import \"gone.proto\";");
    assert_eq!(said, "a.proto:5:1: import 'gone.proto' not found");
}

#[test]
fn a_file_outside_the_include_folders_is_refused() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/graph.proto");
    let elsewhere = tempfile::tempdir().unwrap();
    let error = convoke_build::configure()
        .out_dir(elsewhere.path())
        .emit_rerun_if_changed(false)
        .compile_protos(&[file], &[elsewhere.path()])
        .unwrap_err();
    assert!(error.to_string().ends_with("is not in any include path"), "{error}");
}

#[test]
fn a_misspelt_option_is_an_error() {
    let said =
        complaint("service S {\n rpc A(M) returns (M) { option (convoke.treee) = true; }\n}");
    assert!(said.starts_with("a.proto:6:"), "{said}");
    assert!(said.contains("convoke.treee"), "{said}");
}

#[test]
fn an_option_of_another_version_is_an_error() {
    let error = compile(&[
        (
            "a.proto",
            "syntax = \"proto3\"; package p; import \"more.proto\"; message M {}\n\
             service S { rpc A(M) returns (M) { option (convoke.later) = 2; } }",
        ),
        (
            "more.proto",
            "syntax = \"proto3\"; package convoke; import \"google/protobuf/descriptor.proto\";\n\
             extend google.protobuf.MethodOptions { optional uint32 later = 50890; }",
        ),
    ])
    .unwrap_err();
    let expected = "a.proto:2:13: p.S/A: this version does not know the option `convoke.later`: \
                    see convoke/options.proto";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_stream_that_is_said_to_be_no_tree_is_refused() {
    let said =
        complaint("service S { rpc A(M) returns (stream M) { option (convoke.tree) = false; } }");
    assert!(
        said.starts_with("a.proto:5:13: p.S/A: `returns (stream ..)` implies `tree`"),
        "{said}"
    );
}

#[test]
fn an_unordered_method_of_an_ordered_service_is_refused() {
    let said = complaint(
        "service S { option (convoke.ordered_service) = true;\n\
         rpc A(M) returns (M) { option (convoke.ordered) = false; } }",
    );
    assert!(said.starts_with("a.proto:6:1: p.S/A: `ordered_service` orders all"), "{said}");
}

/// Error for a method with these options, from its name on.
fn complaint_of(signature: &str, options: &[(&str, &str)]) -> String {
    let options =
        options.iter().map(|(name, value)| format!("option (convoke.{name}) = {value}; "));
    let options: String = options.collect();
    let said = complaint(&format!(
        "message N {{ uint64 n = 1; }}\nservice S {{\n  rpc {signature} {{ {options}}}\n}}"
    ));
    said.strip_prefix("a.proto:7:3: p.S/A: ").unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn echo_phases_are_from_one_to_sixteen() {
    for count in [0, 17, 4_000_000_000_u32] {
        let said = complaint_of("A(M) returns (N)", &[("echo_phases", &count.to_string())]);
        let expected = format!(
            "`echo_phases` is {count}, and must be from 1 to 16; without the option the reply \
             leaves at once"
        );
        assert_eq!(said, expected);
    }
}

#[test]
fn echo_phases_are_of_methods_with_one_reply() {
    let said = complaint_of("A(M) returns (stream N)", &[("echo_phases", "1")]);
    assert!(said.starts_with("`echo_phases` hold back the one reply of each member"), "{said}");
    let tree = complaint_of("A(M) returns (N)", &[("echo_phases", "1"), ("tree", "true")]);
    assert_eq!(tree, said);
}

#[test]
fn echo_phases_are_about_one_call_of_a_configuration() {
    for option in [("read_only", "true"), ("idempotent", "true")] {
        let said = complaint_of("A(M) returns (N)", &[("echo_phases", "1"), option]);
        assert!(said.starts_with("members echo about one call"), "{said}");
    }
    let said = complaint_of("A(M) returns (N)", &[("echo_phases", "1"), ("quorum", "false")]);
    assert!(said.starts_with("`echo_phases` implies `quorum`, which the option denies"), "{said}");
}

#[test]
fn many_nodes_take_one_request() {
    for option in [("quorum", "true"), ("multicast", "true"), ("echo_phases", "1")] {
        let said = complaint_of("A(stream M) returns (M)", &[option]);
        assert!(said.starts_with("a streamed request goes to one node, and"), "{said}");
    }
}

#[test]
fn a_multicast_has_no_answer() {
    let said = complaint_of("A(M) returns (N)", &[("multicast", "true")]);
    assert!(said.starts_with("nobody reads what a `multicast` method answers"), "{said}");
    for option in [("quorum", "true"), ("echo_phases", "1")] {
        let said = complaint_of("A(M) returns (M)", &[("multicast", "true"), option]);
        assert!(said.contains("`quorum` and `echo_phases` are about its replies"), "{said}");
    }
    let tree = complaint_of("A(M) returns (M)", &[("multicast", "true"), ("tree", "true")]);
    let stream = complaint_of("A(M) returns (stream M)", &[("multicast", "true")]);
    assert!(tree.starts_with("nobody waits for a `multicast` method, and a tree"), "{tree}");
    assert_eq!(tree, stream);
}

#[test]
fn a_method_that_changes_nothing_is_idempotent() {
    let said = complaint_of("A(M) returns (N)", &[("read_only", "true"), ("idempotent", "false")]);
    assert_eq!(
        said,
        "`read_only` implies `idempotent`, which the option denies: remove one of them"
    );
}

/// Asserts that of a file with this body the thing with the full name `of` is refused, at `place`,
/// as its name and another would be the same `rust`.
fn refuses_two(body: &str, place: &str, of: &str, names: [&str; 2], rust: &str) {
    let [name, other] = names;
    let said = complaint(body);
    let expected = format!(
        "a.proto:{place}: {of}: `{name}` and `{other}` would both be {rust} in Rust: rename one \
         in the .proto file"
    );
    assert_eq!(said, expected);
}

#[test]
fn a_message_with_the_name_of_the_members_is_refused() {
    let rpc = "rpc A(M) returns (M) { option (convoke.quorum) = true; }";
    let message = format!("message SMembers {{}} service S {{ {rpc} }}");
    refuses_two(&message, "5:21", "p.S", ["S", "SMembers"], "the type `SMembers`");
    let methods = format!("service S {{ {rpc}\nrpc On(M) returns (M); rpc On_(M) returns (M); }}");
    refuses_two(&methods, "6:24", "p.S/On_", ["On_", "On"], "the method `on`");
}

#[test]
fn a_message_with_the_name_of_a_client_is_refused() {
    let body = "message SClient {} service S {}";
    refuses_two(body, "5:20", "p.S", ["S", "SClient"], "the type `SClient`");
}

#[test]
fn a_package_with_the_name_of_a_module_is_refused() {
    let main = "syntax = \"proto3\"; package p; import \"b.proto\"; message M {}\n\
                service Inner { rpc A(M) returns (p.inner.N); }";
    let inner = "syntax = \"proto3\"; package p.inner; message N {}";
    let error = compile(&[("a.proto", main), ("b.proto", inner)]).unwrap_err();
    let expected =
        "a.proto:2:1: p.Inner: `Inner` and `p.inner` would both be the module `inner` in Rust";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn methods_that_differ_in_case_alone_are_refused() {
    let body = "service S { rpc GetX(M) returns (M); rpc get_x(M) returns (M); }";
    refuses_two(body, "5:38", "p.S/get_x", ["get_x", "GetX"], "the method `get_x`");
}

#[test]
fn services_that_differ_in_case_alone_are_refused() {
    let body = "service HTTPServer {}\nservice HttpServer {}";
    let names = ["HttpServer", "HTTPServer"];
    refuses_two(body, "6:1", "p.HttpServer", names, "the type `HttpServer`");
}

#[test]
fn a_message_with_the_name_of_a_service_is_refused() {
    let body = "message graph {} service Graph {}";
    refuses_two(body, "5:18", "p.Graph", ["Graph", "graph"], "the type `Graph`");
}

#[test]
fn methods_that_rust_has_one_name_for_are_refused() {
    for (one, other, name) in
        [("Self", "self", "self"), ("New", "new", "new"), ("Type", "_type", "type")]
    {
        let body =
            format!("service S {{\n rpc {one}(M) returns (M);\n rpc {other}(M) returns (M);\n}}");
        let (of, rust) = (format!("p.S/{other}"), format!("the method `{name}`"));
        refuses_two(&body, "7:2", &of, [other, one], &rust);
    }
}

#[test]
fn types_within_a_message_that_rust_has_one_name_for_are_refused() {
    for (body, place, of, names, rust) in [
        (
            "message N { message foo {} message Foo {} }",
            "5:28",
            "p.N.Foo",
            ["Foo", "foo"],
            "the type `Foo`",
        ),
        (
            "message N { message Foo { message X {} } message foo_ { message Y {} } }",
            "5:42",
            "p.N.foo_",
            ["foo_", "Foo"],
            "the type `Foo`",
        ),
        (
            "message N { message O { enum e { A = 0; } message E {} } }",
            "5:25",
            "p.N.O.e",
            ["e", "E"],
            "the type `E`",
        ),
        (
            "message N { message Kind {} message KindOneOf {} oneof kind { M m = 1; } }",
            "5:29",
            "p.N.KindOneOf",
            ["KindOneOf", "kind"],
            "the type `KindOneOf`",
        ),
        ("message N { message X {} } service n {}", "5:28", "p.n", ["n", "N"], "the type `N`"),
    ] {
        refuses_two(body, place, of, names, rust);
    }
}

#[test]
fn types_taken_from_elsewhere_have_no_name_that_clashes() {
    let folder = tempfile::tempdir().unwrap();
    let proto = "syntax = \"proto3\"; package p; message graph {} service Graph {}";
    fs::write(folder.path().join("a.proto"), proto).unwrap();
    let builder = convoke_build::configure().out_dir(folder.path()).emit_rerun_if_changed(false);
    let builder = builder.extern_path(".p.graph", "::other::Graph");
    builder.compile_protos(&["a.proto"], &[folder.path()]).unwrap();
}

#[test]
fn names_within_a_message_or_enum_that_rust_has_one_name_for_are_refused() {
    for (body, place, name, said_of) in [
        (
            "message N { optional M FooBar = 1; optional M foo_bar = 2; }",
            "3:36",
            "p.N.foo_bar",
            "`foo_bar` and `FooBar` would both be the field `foo_bar` in Rust",
        ),
        (
            "message N { optional M Kind = 1; oneof kind { M b = 2; } }",
            "3:34",
            "p.N.kind",
            "`kind` and `Kind` would both be the field `kind` in Rust",
        ),
        (
            "message N { oneof k { M foo1 = 1; M Foo1 = 2; } }",
            "3:35",
            "p.N.Foo1",
            "`Foo1` and `foo1` would both be the variant `Foo1` in Rust",
        ),
        (
            "enum E { KB = 0; Kb = 1; }",
            "3:18",
            "p.Kb",
            "`Kb` and `KB` would both be the variant `Kb` in Rust",
        ),
        (
            "enum On { ON_ALL = 0; ALL = 1; }",
            "3:23",
            "p.ALL",
            "`ALL` and `ON_ALL` would both be the variant `All` in Rust",
        ),
    ] {
        // Of the second version, whose compiler lets the names in JSON be equal.
        let proto = format!("syntax = \"proto2\"; package p;\nmessage M {{}}\n{body}");
        let said = compile(&[("a.proto", &proto)]).unwrap_err().to_string();
        let expected = format!("a.proto:{place}: {name}: {said_of}: rename one in the .proto file");
        assert_eq!(said, expected);
    }
}

#[test]
fn names_that_differ_in_rust_are_no_clash() {
    let proto = "syntax = \"proto2\"; package p;\n\
                 enum E { option allow_alias = true; A_B = 0; a_b = 0; AB = 1; }\n\
                 message M { optional E e = 1; oneof k { E foobar = 2; E foo_bar = 3; } }";
    assert_eq!(compile(&[("a.proto", proto)]).unwrap(), ["all.rs", "p.rs"]);
}

#[test]
fn a_name_without_a_letter_is_refused() {
    for (body, place, name) in [
        ("service _ { rpc A(M) returns (M); }", "5:1", "p._"),
        ("service S { rpc _(M) returns (M); }", "5:13", "p.S/_"),
        ("message __ {}", "5:1", "p.__"),
        ("message N { M _ = 1; }", "5:13", "p.N._"),
        ("message N { oneof _ { M m = 1; } }", "5:13", "p.N._"),
        ("enum _ { A = 0; }", "5:1", "p._"),
        ("message N { enum E { _ = 0; } }", "5:22", "p.N._"),
    ] {
        let said = complaint(body);
        let expected = format!("a.proto:{place}: {name}: `_");
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.ends_with("rename it in the .proto file"), "{said}");
    }
    let error = compile(&[("a.proto", "syntax = \"proto3\"; package a._.b;")]).unwrap_err();
    assert!(error.to_string().starts_with("a.proto:1:20: a._.b: `_` has no letter"), "{error}");
}

#[test]
fn a_carriage_return_in_a_comment_ends_its_line() {
    let said = "// One.\r// Two.\r\nmessage M {\n  /* Three.\r Four. */\n  uint64 n = 1;\n}\n\
                // Five.\rSix.\nservice S {\n  rpc A(M) returns (M); // Seven.\rEight.\n}\n";
    let proto = format!("syntax = \"proto3\"; package p;\n{said}");
    assert_eq!(compile(&[("a.proto", &proto)]).unwrap(), ["all.rs", "p.rs"]);
}

#[test]
fn without_a_folder_nothing_is_written() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/graph.proto");
    let builder = convoke_build::configure().emit_rerun_if_changed(false);
    let error = builder.compile_protos(&[&proto], &[proto.parent().unwrap()]).unwrap_err();
    assert!(matches!(error, Error::NoOutDir), "{error}");
}

/// Error for this file that includes the others, with nothing written.
fn complaint_of_include_file(package: &str, file: &str) -> String {
    let (protos, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let proto = format!("syntax = \"proto3\"; {package} message M {{}}");
    fs::write(protos.path().join("a.proto"), proto).unwrap();
    let builder = convoke_build::configure().out_dir(out.path()).include_file(file);
    let builder = builder.emit_rerun_if_changed(false);
    let error = builder.compile_protos(&["a.proto"], &[protos.path()]).unwrap_err();
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing is written");
    error.to_string()
}

#[test]
fn a_file_of_all_packages_is_the_file_of_none() {
    for file in ["tiny.rs", "Tiny.rs", "./tiny.rs"] {
        let expected = format!(
            "include_file(\"{file}\"): it is the file of package `tiny`: give it another name"
        );
        assert_eq!(complaint_of_include_file("package tiny;", file), expected);
    }
    let expected =
        "include_file(\"_.rs\"): it is the file of what has no package: give it another name";
    assert_eq!(complaint_of_include_file("", "_.rs"), expected);
}

#[test]
fn a_file_of_all_packages_lies_beside_theirs() {
    for file in ["sub/all.rs", "../all.rs", ""] {
        let expected = format!(
            "include_file(\"{file}\"): it has to lie beside the files it includes: give its name \
             alone"
        );
        assert_eq!(complaint_of_include_file("package tiny;", file), expected);
    }
}

#[test]
fn each_package_has_a_file_and_one_includes_them_all() {
    let main = "syntax = \"proto3\"; package p; import \"b.proto\"; message M { q.r.N n = 1; }";
    let inner = "syntax = \"proto3\"; package q.r; message N {}";
    let names = compile(&[("a.proto", main), ("b.proto", inner)]).unwrap();
    assert_eq!(names, ["all.rs", "p.rs", "q.r.rs"]);
}
