//! Writes the archive format that Linux unpacks as its first root file system (`newc`).

use std::collections::BTreeSet;

/// Files and folders, appended one after another. Folders above a file come by themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    paths: BTreeSet<String>,
}

impl Archive {
    /// Adds a file at this path below the root; anyone may run it if `is_program`. A path that is
    /// there already keeps what it has.
    pub(crate) fn file(&mut self, path: &str, content: &[u8], is_program: bool) {
        let path = path.trim_start_matches('/');
        if self.has(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.entry(path, REGULAR | if is_program { 0o755 } else { 0o644 }, content);
    }

    /// Adds a folder and those above it.
    pub(crate) fn folder(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        if self.has(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.entry(path, FOLDER | 0o755, &[]);
    }

    /// True when something is at this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.paths.contains(path.trim_start_matches('/'))
    }

    /// The archive with its end mark.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        self.paths.insert(path.to_owned());
        let size = u32::try_from(content.len()).expect("files of a boot image are below 4 GiB");
        let name_size = u32::try_from(path.len() + 1).expect("paths are short");
        // Inode, mode, owner, group, links, time, size, device of the file (2), device it is (2),
        // length of the name with its NUL, checksum (unused): in hexadecimal.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08X}").bytes()));
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    /// Names and contents begin at multiples of four, counted from the start of the archive.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back: path, mode and content of each entry.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let field = |index: usize| {
                let digits = &bytes[6 + 8 * index..14 + 8 * index];
                u32::from_str_radix(str::from_utf8(digits).expect("digits"), 16).expect("a number")
            };
            assert_eq!(&bytes[..6], b"070701");
            let (mode, size, name) = (field(1), field(6) as usize, field(11) as usize);
            let path = str::from_utf8(&bytes[110..110 + name - 1]).expect("text").to_owned();
            let start = (110 + name).next_multiple_of(4);
            entries.push((path, mode, bytes[start..start + size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(4)..];
        }
        entries
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_once() {
        let mut archive = Archive::default();
        archive.file("/bin/tool", b"abcde", true);
        archive.file("bin/data", b"", false);
        archive.folder("etc/deep");
        let entries = read(&archive.finish());
        let paths: Vec<_> = entries.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["bin", "bin/tool", "bin/data", "etc", "etc/deep", "TRAILER!!!"]);
        assert_eq!((entries[1].1, entries[1].2.as_slice()), (0o100_755, &b"abcde"[..]));
        assert_eq!((entries[0].1, entries[2].1), (0o040_755, 0o100_644));
    }

    #[test]
    fn the_first_content_of_a_path_stays() {
        let mut archive = Archive::default();
        archive.file("a", b"first", false);
        archive.file("/a", b"second", false);
        let entries = read(&archive.finish());
        assert_eq!((entries.len(), entries[0].2.as_slice()), (2, &b"first"[..]));
    }
}
