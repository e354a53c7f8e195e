//! Files of kernel modules that a machine needs, in the order in which they load.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};

/// Modules that are loaded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Set {
    /// The name that the guest's scripts know it by.
    pub(crate) name: &'static str,
    modules: &'static [&'static str],
}

/// All that a guest may load.
pub(crate) const SETS: [Set; 4] = [
    // The checksums are looked up by name while the device comes up, so nothing depends on them.
    Set {
        name: "rdma",
        modules: &["crc32_generic", "crc32c_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe"],
    },
    Set { name: "veth", modules: &["veth"] },
    Set { name: "cable", modules: &["virtio_pci", "virtio_net"] },
    Set { name: "loss", modules: &["sch_netem"] },
];

/// The text of `modules.dep`: which file needs which.
#[derive(Clone, Debug)]
pub(crate) struct Dependencies<'a> {
    /// By the name of a module: its file, and the files it needs.
    files: BTreeMap<String, (&'a str, Vec<&'a str>)>,
}

impl<'a> Dependencies<'a> {
    /// Reads the text, of which each line is a file, a colon and the files it needs.
    pub(crate) fn parse(text: &'a str) -> Self {
        let entry = |line: &'a str| {
            let (file, needs) = line.split_once(':')?;
            Some((name_of(file), (file, needs.split_whitespace().collect())))
        };
        Self { files: text.lines().filter_map(entry).collect() }
    }

    /// The files of a set in an order in which each comes after those it needs.
    ///
    /// # Errors
    /// The kernel has no such module.
    pub(crate) fn load_order(&self, set: &Set) -> anyhow::Result<Vec<&'a str>> {
        let mut order = Vec::new();
        for module in set.modules {
            self.visit(module, &mut BTreeSet::new(), &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        module: &str,
        above: &mut BTreeSet<String>,
        order: &mut Vec<&'a str>,
    ) -> anyhow::Result<()> {
        let name = name_of(module);
        let (file, needs) =
            self.files.get(&name).with_context(|| format!("the kernel has no module {module}"))?;
        if order.contains(file) {
            return Ok(());
        }
        ensure!(above.insert(name.clone()), "module {module} needs itself");
        for needed in needs {
            self.visit(needed, above, order)?;
        }
        above.remove(&name);
        order.push(*file);
        Ok(())
    }
}

/// The name of a module from its file: without folders and suffixes; blanks are written both ways.
pub(crate) fn name_of(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
kernel/net/a-b.ko.xz: kernel/c.ko kernel/d.ko
kernel/c.ko: kernel/d.ko
kernel/d.ko:
kernel/x.ko: kernel/y.ko
kernel/y.ko: kernel/x.ko
";

    fn order(modules: &'static [&'static str]) -> anyhow::Result<Vec<&'static str>> {
        Dependencies::parse(TEXT).load_order(&Set { name: "some", modules })
    }

    #[test]
    fn what_is_needed_loads_first_and_once() {
        let expected = ["kernel/d.ko", "kernel/c.ko", "kernel/net/a-b.ko.xz"];
        assert_eq!(order(&["a_b", "d"]).expect("all are there"), expected);
    }

    #[test]
    fn a_missing_module_is_named() {
        let error = order(&["d", "siw"]).expect_err("there is none");
        assert!(error.to_string().contains("siw"));
    }

    #[test]
    fn modules_that_need_each_other_are_an_error() {
        assert!(order(&["x"]).is_err());
    }
}
