//! The modules of this crate are in layers: none knows one that knows it, directly or through
//! others. Only a parent and its own children may know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Code of modules by their paths, such as `crate::driver::task`.
type Modules = BTreeMap<String, String>;
/// Children of one module, each with the others that it names.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

#[test]
fn no_modules_know_each_other_in_a_circle() {
    let mut modules = Modules::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "crate::", &mut modules);
    for layers in ["client", "endpoint", "server", "driver", "telemetry"].windows(2) {
        assert!(graph(&modules, "crate")[layers[0]].contains(layers[1]), "{layers:?}");
    }
    for parent in modules.keys() {
        assert_eq!(circle(graph(&modules, parent)), Graph::new(), "a circle in {parent}");
    }
}

fn read(folder: &Path, above: &str, into: &mut Modules) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("it has a name");
        let module = if name == "lib" { "crate".to_owned() } else { format!("{above}{name}") };
        if path.is_dir() {
            read(&path, &format!("{module}::"), into);
        } else {
            let text = fs::read_to_string(&path).expect("it is a file");
            let tests = ["#[cfg(test)]\nmod ", "#[cfg(test)]\npub(super) mod "];
            let ends = tests.iter().filter_map(|tests| text.find(tests));
            let code = &text[..ends.min().unwrap_or(text.len())];
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            into.insert(module, code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// A child names another by its path, or by what their parent imports from it.
fn graph<'a>(modules: &'a Modules, parent: &str) -> Graph<'a> {
    let (below, mut homes, mut graph) = (format!("{parent}::"), BTreeMap::new(), Graph::new());
    let files =
        || modules.iter().filter_map(|(path, code)| Some((path.strip_prefix(&below)?, code)));
    for child in files().map(|(path, _)| word(path)) {
        let import = format!("use {child}::");
        let imported = names_after(&import, &modules[parent]);
        homes.extend(imported.chain([child]).map(|name| (name, child)));
    }
    for (path, code) in files() {
        let of_parent = if path == word(path) { "super::" } else { &below };
        let names = names_after(&below, code).chain(names_after(of_parent, code));
        let known = names.filter_map(|name| homes.get(name).copied());
        graph.entry(word(path)).or_default().extend(known.filter(|known| *known != word(path)));
    }
    graph
}

/// The name that follows a prefix, or each of those in braces.
fn names_after<'a>(prefix: &str, code: &'a str) -> impl Iterator<Item = &'a str> {
    let lists = code.split(prefix).skip(1).map(|rest| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or_default(),
        None => word(rest),
    });
    lists.flat_map(|list| list.split(',').map(|name| word(name.trim_start())))
}

/// The identifier that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The modules that are left when those that name none of the others, or that none names, are
/// taken away.
fn circle(mut graph: Graph<'_>) -> Graph<'_> {
    loop {
        let (before, names) = (graph.len(), graph.clone());
        let known: BTreeSet<&str> = names.values().flatten().copied().collect();
        graph.values_mut().for_each(|knows| knows.retain(|name| names.contains_key(name)));
        graph.retain(|name, knows| !knows.is_empty() && known.contains(name));
        if graph.len() == before {
            return graph;
        }
    }
}
