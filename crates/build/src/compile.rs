//! From `.proto` files to descriptors, by protox, which finds `convoke/options.proto` without a
//! copy.

use std::fs;
use std::path::{Path, PathBuf};

use prost_reflect::{DescriptorPool, FileDescriptor};
use prost_types::FileDescriptorProto;
use prost_types::source_code_info::Location;
use protox::Compiler;
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};

use crate::OPTIONS_PROTO;
use crate::error::Error;

/// Files without a mistake, and all they import.
pub(crate) struct Compiled {
    compiler: Compiler,
}

impl Compiled {
    pub(crate) fn new(protos: &[&Path], includes: &[&Path]) -> Result<Self, Error> {
        let mut compiler = Compiler::with_file_resolver(resolver(includes));
        compiler.include_imports(true).include_source_info(true);
        for proto in protos {
            check_exists(proto, includes)?;
            compiler.open_file(proto).map_err(|error| readable(&error, includes))?;
        }
        Ok(Self { compiler })
    }

    /// Every file, those imported first, with comments that may stand in Rust.
    pub(crate) fn files(&self) -> Vec<FileDescriptorProto> {
        let mut files = self.compiler.file_descriptor_set().file;
        let info = files.iter_mut().filter_map(|file| file.source_code_info.as_mut());
        info.flat_map(|info| &mut info.location).flat_map(comments).for_each(clean);
        files
    }

    /// The descriptors with their options, of which prost's types forget the extensions.
    pub(crate) fn pool(&self) -> DescriptorPool {
        self.compiler.descriptor_pool()
    }

    /// The descriptors as a `FileDescriptorSet`, with their options.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.compiler.encode_file_descriptor_set()
    }

    /// The files on disk that were read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Path> {
        self.compiler.files().filter_map(|file| file.path())
    }

    /// Path of the file that the compiler knows as `name`.
    pub(crate) fn source(&self, name: &str) -> PathBuf {
        let file = self.compiler.files().find(|file| file.name() == name);
        file.and_then(|file| file.path()).unwrap_or(Path::new(name)).to_owned()
    }

    /// Error that says what is wrong at the descriptor with this path in its file.
    pub(crate) fn misuse(
        &self,
        file: &FileDescriptor,
        path: &[i32],
        subject: &str,
        what: String,
    ) -> Error {
        let source = self.source(file.name()).display().to_string();
        let info = file.file_descriptor_proto().source_code_info.as_ref();
        let location = info.and_then(|info| info.location.iter().find(|place| place.path == path));
        let place = match location.map(|location| location.span.as_slice()) {
            Some([line, column, ..]) => format!("{source}:{}:{}", line + 1, column + 1),
            _ => source,
        };
        Error::Options { place, subject: subject.to_owned(), message: what }
    }
}

fn comments(location: &mut Location) -> impl Iterator<Item = &mut String> {
    let attached = location.leading_comments.iter_mut().chain(&mut location.trailing_comments);
    attached.chain(&mut location.leading_detached_comments)
}

/// Makes a carriage return on its own, which Rust has in no comment, the line's end that it was,
/// and drops characters that turn the direction of text, which Rust refuses in code.
fn clean(comment: &mut String) {
    if comment.contains('\r') {
        *comment = comment.replace("\r\n", "\n").replace('\r', "\n");
    }
    if comment.contains(is_turn) {
        *comment = comment.replace(is_turn, "");
    }
}

fn is_turn(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Brings `convoke/options.proto`.
struct Embedded;

impl FileResolver for Embedded {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            OPTIONS_NAME => File::from_source(OPTIONS_NAME, OPTIONS_PROTO),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

const OPTIONS_NAME: &str = "convoke/options.proto";

fn resolver(includes: &[&Path]) -> ChainFileResolver {
    let mut chain = ChainFileResolver::new();
    // First, so that a copy of another version cannot hide the options this version understands.
    chain.add(Embedded);
    includes.iter().for_each(|folder| chain.add(IncludeFileResolver::new(folder.to_path_buf())));
    chain.add(GoogleFileResolver::new());
    chain
}

/// The compiler says of a missing file that it is in no include folder, which sends people looking
/// in the wrong place.
fn check_exists(proto: &Path, includes: &[&Path]) -> Result<(), Error> {
    if proto.exists() || includes.iter().any(|folder| folder.join(proto).exists()) {
        return Ok(());
    }
    let includes: Vec<_> = includes.iter().map(|folder| folder.display().to_string()).collect();
    Err(Error::MissingFile { path: proto.to_owned(), includes: includes.join(", ") })
}

/// `file:line:column: text`, with the file as it is found from here.
fn readable(error: &protox::Error, includes: &[&Path]) -> Error {
    // Only `Debug` has the place.
    let text = format!("{error:?}");
    let message = match error.file() {
        Some(file) => match text.strip_prefix(file) {
            Some(rest) => {
                format!("{}:{}", found(file, includes).display(), rest.trim_start_matches(':'))
            }
            // Those that quote the file are about it, not about a place in it.
            None if text.contains(file) => text,
            None => without_place(&found(file, includes), &text),
        },
        None => text,
    };
    Error::Proto { message }
}

/// The file as it is found from here.
fn found(file: &str, includes: &[&Path]) -> PathBuf {
    let found = includes.iter().map(|folder| folder.join(file)).find(|path| path.exists());
    found.unwrap_or_else(|| file.into())
}

/// A defect to which the compiler gives no place: that the file ends too early is at its end, and
/// of others the file is known.
fn without_place(file: &Path, text: &str) -> String {
    let end = text.ends_with("but reached end of file").then(|| fs::read_to_string(file).ok());
    match end.flatten() {
        Some(source) => {
            let last = source.lines().enumerate().last();
            let (line, column) = last.map_or((1, 1), |(i, last)| (i + 1, last.chars().count() + 1));
            format!("{}:{line}:{column}: {text}", file.display())
        }
        None => format!("{}: {text}", file.display()),
    }
}
