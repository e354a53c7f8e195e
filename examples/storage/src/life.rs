//! The one life of a replica in its cluster.
//!
//! What a replica has acknowledged is in its memory alone. One that starts again, empty, could be
//! the only one of a majority that had a value, and a read would miss what was written. A mark in
//! its folder, durable before it answers anybody, keeps a supervisor, which starts what has crashed
//! again, from doing that.

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
        match leave(folder, &mark) {
            Ok(()) => Ok(Self { mark }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
                "replica {replica} of cluster {cluster} has run before, as {} says, and has \
                 forgotten what it stored, so it may not start again: the others go on without it \
                 while they are a majority; to begin anew, give [cluster] another id and start all",
                mark.display()
            ),
            Err(error) => Err(error).with_context(|| format!("cannot write {}", mark.display())),
        }
    }

    /// Takes it back: the replica has answered nobody.
    pub fn take_back(self) {
        // Left, it keeps the replica from starting, which is told.
        let _ = fs::remove_file(self.mark);
    }
}

fn leave(folder: &Path, mark: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = File::create_new(mark)?;
    file.write_all(b"It kept what it stored in memory, and must not start again.\n")?;
    file.sync_all()?;
    // The name, too, where a folder can be synced.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_begins_once_in_each_cluster_unless_it_was_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("node-1");
        Life::begin(&folder, 7, 1).expect("it is the first").take_back();
        Life::begin(&folder, 7, 1).expect("that was none");
        let error = Life::begin(&folder, 7, 1).expect_err("it has begun").to_string();
        assert!(error.contains("replica 1 of cluster 7 has run before"), "{error}");
        Life::begin(&folder, 8, 1).expect("it is another cluster");
    }
}
