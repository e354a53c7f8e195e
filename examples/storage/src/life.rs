//! The one life of a replica in its cluster.
//!
//! Writes that a replica has acknowledged are in its memory alone. One that starts again, empty,
//! could be the only one of a majority that had a value, and a read would miss what was written. A
//! mark in its folder, durable before it answers anybody, keeps a supervisor, which starts what has
//! crashed again, from doing that.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A replica that has begun its life.
#[derive(Debug)]
pub struct Life {
    mark: PathBuf,
}

impl Life {
    /// Begins that of a replica of this cluster, whose files have this folder.
    ///
    /// # Errors
    /// When it has begun before, or the mark of it cannot be left.
    pub fn begin(folder: &Path, cluster: u64, replica: u64) -> Result<Self> {
        let mark = folder.join(format!("ran-in-cluster-{cluster}"));
        let cannot_write = format!("cannot write {}", mark.display());
        make(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let file = match File::create_new(&mark) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
                "replica {replica} of cluster {cluster} has run before, or runs now, as {} says: \
                 another process would lack what it stored, so it may not start again; the others \
                 go on without it while they are a majority; to begin anew, give [cluster] another \
                 id and start all",
                mark.display()
            ),
            created => created.with_context(|| cannot_write.clone())?,
        };
        let life = Self { mark };
        if let Err(error) = keep(file, folder) {
            life.take_back();
            return Err(error).context(cannot_write);
        }
        Ok(life)
    }

    /// Takes it back: the replica has answered nobody.
    pub fn take_back(self) {
        // Left, it keeps the replica from starting, which is told.
        let _ = fs::remove_file(self.mark);
    }
}

/// Makes a folder, and those above it, whose names are durable then.
fn make(folder: &Path) -> io::Result<()> {
    let is_new = |at: &&Path| !at.as_os_str().is_empty() && !at.exists();
    let new: Vec<&Path> = folder.ancestors().take_while(is_new).collect();
    fs::create_dir_all(folder)?;
    new.into_iter().filter_map(Path::parent).try_for_each(sync)
}

/// Makes the mark durable, and its name.
fn keep(mut mark: File, folder: &Path) -> io::Result<()> {
    mark.write_all(b"It kept what it stored in memory, and must not start again.\n")?;
    mark.sync_all()?;
    sync(folder)
}

/// Makes the names in a folder durable, where a folder can be synced.
fn sync(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_begins_once_in_each_cluster_unless_it_was_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("nodes").join("node-1");
        Life::begin(&folder, 7, 1).expect("it is the first").take_back();
        Life::begin(&folder, 7, 1).expect("that was none");
        let error = Life::begin(&folder, 7, 1).expect_err("it has begun").to_string();
        assert!(error.contains("replica 1 of cluster 7 has run before"), "{error}");
        Life::begin(&folder, 8, 1).expect("it is another cluster");
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_life_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("node-1");
        fs::write(&file, "a file").expect("the folder is writable");
        let error = Life::begin(&file, 7, 1).expect_err("there is a file").to_string();
        assert!(error.contains("cannot make the folder"), "{error}");
    }
}
