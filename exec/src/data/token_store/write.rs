//! Making a store: below another name first, in place as a whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::layout::{Entry, FORMAT, MANIFEST, Part, dropped_to_bytes};
use super::manifest::{DTYPE, KIND, Manifest, Source, Summary, Written};
use super::recipe::Recipe;
use super::sources;
use super::stage::Stage;
use crate::data::chat::Tokens;
use crate::data::counts::{Counts, DropReason};
use crate::data::dataset::add_sample;
use crate::data::digest::Digest;
use crate::data::error::Result;
use crate::data::loader::{Sink, read_into};
use crate::data::source_file::Seen;
use crate::data::watch::Watch;

/// Makes the store `dir` from what `recipe` names; a store that is there already is replaced.
///
/// Memory holds a few megabytes of lines at a time, the names of the sources and 8 bytes for every
/// record with an `id`.
///
/// # Errors
/// As [`crate::data::load`]; `dir` holds something else; another process writes it; the disk refuses.
/// Whatever was in `dir` before is then still there.
pub fn prepare(dir: &Path, recipe: &Recipe<'_>, watch: &dyn Watch) -> Result<Summary> {
    let settings = recipe.settings()?;
    let writer = Writer::create(dir)?;
    let (writer, counts) = read_into(writer, recipe.inputs, recipe.tokenizer, recipe.rules, watch)?;
    if watch.is_stopped() {
        return Err(crate::data::DataError::Stopped);
    }
    writer.publish(settings, counts)
}

/// A store under way. Dropped before it is published, it leaves nothing behind.
struct Writer {
    stage: Stage,
    parts: [PartFile; 5],
    sources: Vec<Source>,
    digest: Digest,
    samples: u64,
    tokens: u64,
    loss_tokens: u64,
    scratch: Vec<u8>,
}

impl Writer {
    fn create(dir: &Path) -> Result<Self> {
        let stage = Stage::new(dir)?;
        let file = |part| PartFile::create(&stage.path, part);
        let [tokens, mask, index, names, dropped] = Part::ALL;
        Ok(Self {
            parts: [
                file(tokens)?,
                file(mask)?,
                file(index)?,
                file(names)?,
                file(dropped)?,
            ],
            stage,
            sources: Vec::new(),
            digest: Digest::new(),
            samples: 0,
            tokens: 0,
            loss_tokens: 0,
            scratch: Vec::new(),
        })
    }

    fn part(&mut self, part: Part) -> &mut PartFile {
        &mut self.parts[part as usize]
    }

    fn file(&self) -> u32 {
        u32::try_from(self.sources.len()).expect("there are at most u32::MAX files")
    }

    fn publish(self, settings: BTreeMap<String, String>, counts: Counts) -> Result<Summary> {
        let summary = Summary {
            samples: self.samples,
            tokens: self.tokens,
            loss_tokens: self.loss_tokens,
            digest: format!("{:016x}", self.digest.finish()),
            counts,
        };
        let mut files = BTreeMap::new();
        for (part, file) in Part::ALL.into_iter().zip(self.parts) {
            files.insert(part.name().to_owned(), file.finish()?);
        }
        let manifest = Manifest {
            kind: KIND.into(),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            dtype: DTYPE.into(),
            summary,
            settings,
            sources: self.sources,
            files,
        };
        let path = self.stage.path.join(MANIFEST);
        let refuse = |source| StoreError::write(&path, source);
        let text = manifest.render().map_err(|error| refuse(error.into()))?;
        let mut file = File::create(&path).map_err(refuse)?;
        file.write_all(&text)
            .and_then(|()| file.sync_all())
            .map_err(refuse)?;
        self.stage.publish()?;
        Ok(manifest.summary)
    }
}

impl Sink for Writer {
    fn begin_file(&mut self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn end_file(&mut self, path: &Path, seen: Seen) -> Result<()> {
        self.sources.push(sources::source(path, seen)?);
        Ok(())
    }

    fn sample(&mut self, tokens: &Tokens, line: u32, name: Option<&str>) -> Result<()> {
        let loss_tokens = tokens.loss_tokens();
        self.part(Part::Names)
            .write(name.unwrap_or("").as_bytes())?;
        let entry = Entry {
            start: self.tokens,
            name_end: self.part(Part::Names).entries(),
            length: u32::try_from(tokens.ids.len()).expect("at most max_len tokens, a u32"),
            loss_tokens: u32::try_from(loss_tokens).expect("at most max_len tokens, a u32"),
            file: self.file(),
            line,
        };
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend(tokens.ids.iter().flat_map(|id| id.to_le_bytes()));
        self.part(Part::Tokens).write(&bytes)?;
        self.scratch = bytes;
        self.part(Part::Mask).write(&tokens.mask)?;
        self.part(Part::Index).write(&entry.to_bytes())?;
        add_sample(&mut self.digest, &tokens.ids, &tokens.mask);
        self.samples += 1;
        self.tokens += tokens.ids.len() as u64;
        self.loss_tokens += loss_tokens;
        Ok(())
    }

    fn dropped(&mut self, line: u32, reason: DropReason) -> Result<()> {
        let entry = dropped_to_bytes(self.file(), line, reason);
        self.part(Part::Dropped).write(&entry)
    }
}

/// One file, its sum kept along.
struct PartFile {
    part: Part,
    path: PathBuf,
    file: BufWriter<File>,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl PartFile {
    fn create(stage: &Path, part: Part) -> Result<Self> {
        let path = stage.join(part.name());
        let file = File::create(&path).map_err(|source| StoreError::write(&path, source))?;
        let mut part_file = Self {
            part,
            path,
            file: BufWriter::with_capacity(1 << 16, file),
            sum: crc32fast::Hasher::new(),
            bytes: 0,
        };
        part_file.write(&part.header())?;
        Ok(part_file)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|source| StoreError::write(&self.path, source))?;
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Entries written so far.
    fn entries(&self) -> u64 {
        (self.bytes - self.part.header().len() as u64) / self.part.entry_bytes() as u64
    }

    fn finish(self) -> Result<Written> {
        let Self {
            path,
            file,
            sum,
            bytes,
            ..
        } = self;
        let synced = file
            .into_inner()
            .map_err(io::Error::from)
            .and_then(|file| file.sync_all());
        synced.map_err(|source| StoreError::write(&path, source))?;
        let crc32 = sum.finalize();
        Ok(Written { bytes, crc32 })
    }
}
