//! Writing results: a file is complete or not there, and what was there before stays until then.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Component, Path, PathBuf};
use tempfile::NamedTempFile;

/// Why a result could not be written. The process's exit code is [`OutputError::CODE`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The folder for results cannot be made.
    #[error("{}: cannot make this directory: {source}; give --out another one", path.display())]
    NoDirectory {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands where the folder for results should be.
    #[error("{}: is not a directory; give --out another one", path.display())]
    NotADirectory {
        /// What stands there.
        path: PathBuf,
    },
    /// A file's name leads out of its folder.
    #[error("{name:?}: is no plain file name; give one without / and ..")]
    NotAName {
        /// The name.
        name: String,
    },
    /// A directory stands where a file should be.
    #[error("{}: is a directory; remove it or write elsewhere", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A pipe, socket or device stands where a file should be.
    #[error("{}: is no regular file; remove it or write elsewhere", path.display())]
    Special {
        /// What stands there.
        path: PathBuf,
    },
    /// The system refused; what stood there before still does.
    #[error("{}: cannot be written: {source}; free space or write elsewhere", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OutputError {
    /// Exit code of errors of disk and output.
    pub(crate) const CODE: u8 = 4;
}

/// A file on its way: written under another name beside its own, and put in place as a whole by [`AtomicFile::publish`].
///
/// Dropped before that, it leaves nothing behind.
pub(crate) struct AtomicFile {
    path: PathBuf,
    writer: BufWriter<NamedTempFile>,
}

impl AtomicFile {
    /// Begins the file at `path`, in a directory that exists.
    ///
    /// # Errors
    /// When something other than a file or a link stands at `path`, or its directory cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        must_be_replaceable(path)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".dflash-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file: the user's umask takes its share.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let file = builder
            .tempfile_in(directory_of(path))
            .map_err(|source| failed(path, source))?;
        Ok(Self {
            path: path.into(),
            writer: BufWriter::new(file),
        })
    }

    /// Puts the file in its place, once all of it is on the disk.
    ///
    /// # Errors
    /// When the disk refuses; what stood there before still does.
    pub(crate) fn publish(self) -> Result<(), OutputError> {
        let Self { path, writer } = self;
        let directory = directory_of(&path);
        let published = || -> io::Result<()> {
            let file = writer.into_inner()?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            sync_directory(directory)
        };
        published().map_err(|source| failed(&path, source))
    }
}

impl AtomicFile {
    /// The error for a write to this file that the system refused.
    pub(crate) fn failed(&self, source: io::Error) -> OutputError {
        failed(&self.path, source)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// What the name of an unfinished record ends with.
const PARTIAL: &str = "partial";

/// A record that grows while others read it: `NAME.partial` until [`LiveFile::publish`] gives it its name.
///
/// Dropped or killed before that, what was written stays under the partial name, so that a reader can tell it from a whole one.
pub(crate) struct LiveFile {
    path: PathBuf,
    writer: BufWriter<File>,
    /// Where the part that an interrupted run left was put.
    aside: Option<PathBuf>,
}

impl LiveFile {
    /// Begins the record at `path`, in a directory that exists. A part that an interrupted run left is kept under another name.
    ///
    /// # Errors
    /// When something other than a file or a link stands at either name, or the directory cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        must_be_replaceable(path)?;
        let partial = with_suffix(path, PARTIAL);
        must_be_replaceable(&partial)?;
        let aside = partial.exists().then(|| free_name(&partial));
        if let Some(aside) = &aside {
            fs::rename(&partial, aside).map_err(|source| failed(&partial, source))?;
        }
        let file = File::create(&partial).map_err(|source| failed(&partial, source))?;
        Ok(Self {
            path: path.into(),
            writer: BufWriter::new(file),
            aside,
        })
    }

    /// Where the part that an interrupted run left was put, if there was one.
    pub(crate) fn aside(&self) -> Option<&Path> {
        self.aside.as_deref()
    }

    /// Gives the record its own name, once all of it is on the disk.
    ///
    /// # Errors
    /// When the disk refuses; the partial record stays.
    pub(crate) fn publish(self) -> Result<(), OutputError> {
        let Self { path, writer, .. } = self;
        let published = || -> io::Result<()> {
            writer.into_inner()?.sync_all()?;
            fs::rename(with_suffix(&path, PARTIAL), &path)?;
            sync_directory(directory_of(&path))
        };
        published().map_err(|source| failed(&path, source))
    }

    /// The error for a write to this file that the system refused.
    pub(crate) fn failed(&self, source: io::Error) -> OutputError {
        failed(&self.path, source)
    }
}

impl Write for LiveFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// `path` with a dot and `suffix` behind its whole name.
fn with_suffix(path: &Path, suffix: impl std::fmt::Display) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    name.into()
}

/// The first of `path.1`, `path.2`, … that is free.
pub(crate) fn free_name(path: &Path) -> PathBuf {
    let mut names = (1..).map(|n: u32| with_suffix(path, n));
    names
        .find(|path| !path.exists())
        .expect("numbers do not end")
}

/// A link is replaced, never followed: what it points at is not ours.
fn must_be_replaceable(path: &Path) -> Result<(), OutputError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Err(OutputError::Directory { path: path.into() }),
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            Err(OutputError::Special { path: path.into() })
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(failed(path, source)),
    }
}

/// Writes a whole file.
///
/// # Errors
/// As [`AtomicFile::create`] and [`AtomicFile::publish`].
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)
        .map_err(|source| file.failed(source))?;
    file.publish()
}

/// The folder for the results of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputDir {
    path: PathBuf,
}

impl OutputDir {
    /// Opens the folder at `path`, making it and those above it if need be. What is in it stays.
    ///
    /// # Errors
    /// When it cannot be made or something else stands there.
    pub(crate) fn create(path: &Path) -> Result<Self, OutputError> {
        match fs::create_dir_all(path) {
            Ok(()) => Ok(Self { path: path.into() }),
            Err(_) if path.exists() => Err(OutputError::NotADirectory { path: path.into() }),
            Err(source) => Err(OutputError::NoDirectory {
                path: path.into(),
                source,
            }),
        }
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins the file `name` in the folder.
    ///
    /// # Errors
    /// When `name` is no plain file name, and as [`AtomicFile::create`].
    pub(crate) fn begin(&self, name: &str) -> Result<AtomicFile, OutputError> {
        AtomicFile::create(&self.place(name)?)
    }

    /// Begins the record `name` in the folder, which others may read while it grows.
    ///
    /// # Errors
    /// When `name` is no plain file name, and as [`LiveFile::create`].
    pub(crate) fn live(&self, name: &str) -> Result<LiveFile, OutputError> {
        LiveFile::create(&self.place(name)?)
    }

    /// The lines of the record `name` that an earlier run left, whole or not; half a line at its end is left out.
    pub(crate) fn lines_left(&self, name: &str) -> Vec<String> {
        let path = self.path.join(name);
        let partial = with_suffix(&path, PARTIAL);
        let text = fs::read(partial).or_else(|_| fs::read(path));
        let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Whether an interrupted run left a part of the record `name`.
    pub(crate) fn has_partial(&self, name: &str) -> bool {
        with_suffix(&self.path.join(name), PARTIAL).exists()
    }

    /// Puts the record `name` of an earlier run under another name, so that the next one does not replace it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn set_aside(&self, name: &str) -> Result<(), OutputError> {
        let path = self.path.join(name);
        if path.exists() {
            fs::rename(&path, free_name(&path)).map_err(|source| failed(&path, source))?;
        }
        Ok(())
    }

    /// Writes the whole file `name` in the folder and returns its path.
    ///
    /// # Errors
    /// When `name` is no plain file name, and as [`write_atomic`].
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, OutputError> {
        let path = self.place(name)?;
        write_atomic(&path, bytes)?;
        Ok(path)
    }

    fn place(&self, name: &str) -> Result<PathBuf, OutputError> {
        let mut parts = Path::new(name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(plain)), None) if plain == name => Ok(self.path.join(name)),
            _ => Err(OutputError::NotAName { name: name.into() }),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> OutputError {
    OutputError::Failed {
        path: path.into(),
        source,
    }
}

/// The directory that holds `path`.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A new name is safe from power loss once its directory is on the disk.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_and_replaces_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        write_atomic(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["results.csv"]);
    }

    #[test]
    fn a_file_given_up_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        write_atomic(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["results.csv"]);
    }

    #[test]
    fn a_record_can_be_read_while_it_grows_and_is_whole_under_its_own_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        let out = OutputDir::create(folder.path()).unwrap();
        let mut live = out.live("trace.txt").unwrap();
        live.write_all(b"one\ntw").unwrap();
        live.flush().unwrap();
        assert_eq!(names(folder.path()), ["trace.txt.partial"]);
        assert_eq!(out.lines_left("trace.txt"), ["one"]);
        assert!(live.aside().is_none() && out.has_partial("trace.txt"));
        drop(live);
        let mut again = out.live("trace.txt").unwrap();
        assert_eq!(
            again.aside(),
            Some(folder.path().join("trace.txt.partial.1").as_path())
        );
        again.write_all(b"whole\n").unwrap();
        again.publish().unwrap();
        assert_eq!(names(folder.path()), ["trace.txt", "trace.txt.partial.1"]);
        assert_eq!(out.lines_left("trace.txt"), ["whole"]);
        out.set_aside("trace.txt").unwrap();
        assert_eq!(names(folder.path()), ["trace.txt.1", "trace.txt.partial.1"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_replaced_and_its_target_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, b"theirs").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomic(&link, b"ours").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"theirs");
        assert_eq!(fs::read(&link).unwrap(), b"ours");
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[cfg(unix)]
    #[test]
    fn files_are_readable_as_the_umask_says() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write_atomic(&ours, b"").unwrap();
        fs::write(&plain, b"").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn directories_and_devices_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("results.csv");
        fs::create_dir(&inner).unwrap();
        assert_eq!(
            write_atomic(&inner, b"").unwrap_err().to_string(),
            format!(
                "{}: is a directory; remove it or write elsewhere",
                inner.display()
            )
        );
        assert!(inner.is_dir());
        if cfg!(unix) {
            assert_eq!(
                write_atomic(Path::new("/dev/null"), b"")
                    .unwrap_err()
                    .to_string(),
                "/dev/null: is no regular file; remove it or write elsewhere"
            );
        }
    }

    #[test]
    fn a_missing_directory_is_named_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone").join("results.csv");
        let message = write_atomic(&path, b"").unwrap_err().to_string();
        let start = format!("{}: cannot be written: ", path.display());
        assert!(message.starts_with(&start), "{message}");
        assert!(
            message.ends_with("; free space or write elsewhere"),
            "{message}"
        );
        assert!(!message.contains('\n'));
    }

    #[test]
    fn the_output_folder_is_made_and_what_is_in_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports/a");
        let out = OutputDir::create(&path).unwrap();
        out.write("one.csv", b"1").unwrap();
        let again = OutputDir::create(&path).unwrap();
        assert_eq!(again.write("two.csv", b"2").unwrap(), path.join("two.csv"));
        assert_eq!(names(again.path()), ["one.csv", "two.csv"]);
    }

    #[test]
    fn a_file_in_place_of_the_output_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reports");
        fs::write(&path, b"theirs").unwrap();
        assert_eq!(
            OutputDir::create(&path).unwrap_err().to_string(),
            format!(
                "{}: is not a directory; give --out another one",
                path.display()
            )
        );
        let below = path.join("a");
        let message = OutputDir::create(&below).unwrap_err().to_string();
        let start = format!("{}: cannot make this directory: ", below.display());
        assert!(message.starts_with(&start), "{message}");
        assert!(message.ends_with("; give --out another one"), "{message}");
        assert_eq!(OutputError::CODE, 4);
    }

    #[test]
    fn names_stay_inside_the_output_folder() {
        let folder = tempfile::tempdir().unwrap();
        let out = OutputDir::create(&folder.path().join("out")).unwrap();
        for name in ["", ".", "..", "../a", "a/b", "/a", "a/"] {
            assert_eq!(
                out.write(name, b"").unwrap_err().to_string(),
                format!("{name:?}: is no plain file name; give one without / and ..")
            );
        }
        assert_eq!(names(folder.path()), ["out"]);
    }
}
