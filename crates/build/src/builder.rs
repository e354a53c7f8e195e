//! The settings, and the steps from files to files.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use prost_build::{Module, ServiceGenerator};

use crate::compile::Compiled;
use crate::error::Error;
use crate::options::Options;
use crate::polish::polish;
use crate::service::Generator;
use crate::{names, output};

/// Settings of the code generator. Every default is good for a build script.
pub struct Builder {
    prost: prost_build::Config,
    convoke_path: String,
    out_dir: Option<PathBuf>,
    include_file: Option<PathBuf>,
    descriptor_set: Option<PathBuf>,
    also: Option<Box<dyn ServiceGenerator>>,
    emits_rerun: bool,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut prost = prost_build::Config::new();
        // std's HashMap has another order in every process: encoding a message twice could differ,
        // and with it digests that members of a quorum compare.
        prost.btree_map(["."]).prost_path("::convoke::prost");
        Self {
            prost,
            convoke_path: "::convoke".to_owned(),
            out_dir: None,
            include_file: None,
            descriptor_set: None,
            also: None,
            emits_rerun: true,
        }
    }

    /// Writes to this folder. Default: `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Also writes this file, which includes those of all packages, each in its module: one
    /// `include!` brings all of them. A name without a folder, since it lies beside them in the
    /// output folder, and other than theirs. Default: none.
    #[must_use]
    pub fn include_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.include_file = Some(file.into());
        self
    }

    /// Also writes the encoded `FileDescriptorSet`, imports and options included, for reflection.
    /// Relative to the folder of the build script's package, not to the output folder: join it to
    /// `OUT_DIR` to have it there. Default: none.
    #[must_use]
    pub fn file_descriptor_set_path(mut self, file: impl Into<PathBuf>) -> Self {
        self.descriptor_set = Some(file.into());
        self
    }

    /// Adds an attribute to the messages, enums and oneofs that match `path`: `"."` is all,
    /// `".social.Profile"` one.
    #[must_use]
    pub fn type_attribute(mut self, path: &str, attribute: &str) -> Self {
        self.prost.type_attribute(path, attribute);
        self
    }

    /// Adds an attribute to the fields that match `path`, such as `".social.Profile.name"`.
    #[must_use]
    pub fn field_attribute(mut self, path: &str, attribute: &str) -> Self {
        self.prost.field_attribute(path, attribute);
        self
    }

    /// Takes the types of `proto_path` from `rust_path` instead of generating them: `".social"`
    /// from `"::social_proto"`.
    #[must_use]
    pub fn extern_path(mut self, proto_path: &str, rust_path: &str) -> Self {
        self.prost.extern_path(proto_path, rust_path);
        self
    }

    /// Makes the `bytes` fields that match one of the paths a `Bytes`, a slice of the frame that
    /// brought it, instead of a `Vec<u8>`. Default: none.
    #[must_use]
    pub fn bytes<'a>(mut self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        self.prost.bytes(paths);
        self
    }

    /// Sets the path by which generated code finds convoke, or a crate that re-exports it. Default:
    /// `::convoke`.
    #[must_use]
    pub fn convoke_path(mut self, path: impl Into<String>) -> Self {
        self.convoke_path = path.into();
        self.prost.prost_path(format!("{}::prost", self.convoke_path));
        self
    }

    /// Changes how prost generates messages, such as where they find prost: in convoke by default.
    /// Settings of output files and services have no effect.
    #[must_use]
    pub fn prost(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.prost);
        self
    }

    /// Also runs another generator for every service, such as tonic's, over the same messages.
    #[must_use]
    pub fn also(mut self, generator: Box<dyn ServiceGenerator>) -> Self {
        self.also = Some(generator);
        self
    }

    /// Tells cargo to run the build script again when one of the files changes, and only then.
    /// Default: true.
    #[must_use]
    pub fn emit_rerun_if_changed(mut self, emits: bool) -> Self {
        self.emits_rerun = emits;
        self
    }

    /// Compiles these files, which lie in one of the folders `includes`, and what they import.
    ///
    /// # Errors
    /// [`Error`], which says where in which file. Unless it is [`Error::Write`], nothing was
    /// written.
    pub fn compile_protos(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), Error> {
        let protos: Vec<&Path> = protos.iter().map(AsRef::as_ref).collect();
        let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
        let compiled = Compiled::new(&protos, &includes)?;
        if self.emits_rerun {
            compiled
                .sources()
                .for_each(|path| println!("cargo:rerun-if-changed={}", path.display()));
        }
        let folder = output::folder(self.out_dir.take())?;
        let modules = self.generate(&compiled)?;
        if let Some(file) = &self.include_file {
            output::check_include_file(file, &folder, &modules)?;
        }
        if let Some(path) = &self.descriptor_set {
            output::write(path, &compiled.encode())?;
        }
        for (module, code) in &modules {
            output::write(&folder.join(output::file_name(module)), code.as_bytes())?;
        }
        match &self.include_file {
            Some(file) => output::write(&folder.join(file), output::includes(&modules).as_bytes()),
            None => Ok(()),
        }
    }

    /// The code of each package.
    fn generate(&mut self, compiled: &Compiled) -> Result<BTreeMap<Module, String>, Error> {
        names::check(compiled)?;
        let options = Options::read(compiled)?;
        let also = self.also.take();
        let generator = Generator::new(self.convoke_path.clone(), options.clone(), also);
        self.prost.service_generator(Box::new(generator));
        let files = compiled.files().into_iter();
        let requests =
            files.map(|file| (Module::from_protobuf_package_name(file.package()), file)).collect();
        let raw = panic::catch_unwind(AssertUnwindSafe(|| self.prost.generate(requests)));
        let raw = match raw {
            Ok(raw) => raw.map_err(|error| Error::Messages { message: error.to_string() })?,
            // It panics where two variants of an enum have one name.
            Err(panicked) => {
                names::check_without_prefix(compiled)?;
                panic::resume_unwind(panicked)
            }
        };
        let raw: BTreeMap<Module, String> = raw.into_iter().collect();
        let polished = raw.iter().map(|(module, code)| {
            let inner = raw.keys().filter_map(|other| output::child(module, other));
            Ok((module.clone(), polish(module, code, inner)?))
        });
        let polished: Result<_, Error> = polished.collect();
        if let Err(Error::NameClash { .. }) = polished {
            // It has the code alone; this looks where in the files the two names are.
            names::check_items(compiled, &options)?;
        }
        polished
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("prost", &self.prost)
            .field("convoke_path", &self.convoke_path)
            .field("out_dir", &self.out_dir)
            .finish_non_exhaustive()
    }
}
