//! Stores on disk: what they give back, and every way they can be broken or outdated.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::layout::{Entry, HEADER_BYTES};
use super::*;
use crate::data::testing::{CHATML_TOKENIZER, write};
use crate::data::{
    DataError, DataErrorKind, Dataset, OnBadLine, OverLong, Rules, Tokenizer, Unwatched, Watch,
    load,
};

const LINES: &str = concat!(
    "{\"id\": \"first\", \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"abc\"}]}\n",
    "{\"text\": \"hello\"}\n",
    "not a record\n",
    "\n",
    "{\"id\": 7, \"input_ids\": [1, 2, 3], \"packed_loss_mask\": \"1,2\"}\n",
    "{\"id\": \"first\", \"text\": \"much longer than is allowed\"}\n",
    "{\"text\": \"\"}\n",
);

/// Sources, a recipe for them, and the place of the store.
struct Desk {
    folder: tempfile::TempDir,
    inputs: Vec<PathBuf>,
    tokenizer: Tokenizer,
    rules: Rules,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        write(folder.path(), "text/a.jsonl", LINES);
        write(
            folder.path(),
            "text/b.txt",
            "plain text of more than sixteen bytes\n",
        );
        let mut rules = Rules::new(16);
        (rules.on_bad_line, rules.bad_share_max) = (OnBadLine::Skip, 1.0);
        Self {
            inputs: vec![folder.path().join("text")],
            folder,
            tokenizer: Tokenizer::byte(),
            rules,
        }
    }

    /// With a store already made.
    fn prepared() -> Self {
        let desk = Self::new();
        desk.prepare().expect("a store");
        desk
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.store().join(name)
    }

    fn recipe(&self) -> Recipe<'_> {
        Recipe {
            inputs: &self.inputs,
            tokenizer: &self.tokenizer,
            rules: &self.rules,
        }
    }

    fn prepare(&self) -> Result<Summary, DataError> {
        prepare(&self.store(), &self.recipe(), &Unwatched)
    }

    fn open(&self) -> Result<Dataset, DataError> {
        open(&self.store(), &self.recipe())
    }

    fn load(&self) -> Dataset {
        load(&self.inputs, &self.tokenizer, &self.rules).expect("samples")
    }

    fn verify(&self) -> Result<Summary, DataError> {
        verify(&self.store(), &self.recipe(), &Unwatched)
    }

    /// Changes the bytes of a file of the store.
    fn spoil(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(name)).expect("a file of the store");
        change(&mut bytes);
        fs::write(self.file(name), bytes).expect("a file of the store");
    }

    /// Expects `error` to read the store's path + `rest`.
    #[track_caller]
    fn says(&self, error: &DataError, kind: DataErrorKind, rest: &str) {
        let expected = format!("{}{rest}", self.store().display());
        assert_eq!((error.to_string(), error.kind()), (expected, kind));
    }

    /// Names of everything beside the sources.
    fn left(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.folder.path())
            .expect("the folder")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .collect();
        names.sort();
        names
    }
}

const AGAIN: &str = ": run `dflash prepare --force`";

#[test]
fn a_store_gives_back_what_a_load_gives() {
    let desk = Desk::new();
    let summary = desk.prepare().expect("a store");
    let (mapped, loaded) = (desk.open().expect("mapped"), desk.load());
    assert_eq!(mapped, loaded);
    assert_eq!(mapped.digest(), loaded.digest());
    assert_eq!(summary.digest, loaded.digest_hex());
    assert_eq!(&summary.counts, loaded.counts());
    assert_eq!(
        (summary.samples, summary.tokens),
        (loaded.len() as u64, loaded.tokens())
    );
    assert_eq!(summary.loss_tokens, loaded.loss_tokens());
    assert_eq!(mapped.loss_tokens(), loaded.loss_tokens());
    let names: Vec<_> = (0..mapped.len()).map(|i| mapped.name(i)).collect();
    assert_eq!(names, [Some("first"), None, Some("7"), None, None, None]);
    assert_eq!(mapped.dropped().len(), 3);
    assert_eq!(summary.counts.ids_repeated, 1);
    assert_eq!(mapped.clone().subset(2, 5), loaded.subset(2, 5));
    assert_eq!(desk.verify().expect("whole"), summary);
    assert_eq!(desk.left(), ["store", "text"]);
}

#[test]
fn a_store_made_twice_has_the_same_bytes_and_replaces_the_old() {
    let desk = Desk::prepared();
    let bytes = |name: &str| fs::read(desk.file(name)).expect("a file of the store");
    let first = bytes("tokens.bin");
    let opened = desk.open().expect("mapped");
    desk.prepare().expect("again");
    assert_eq!(bytes("tokens.bin"), first);
    write(desk.folder.path(), "text/c.txt", "more text");
    desk.prepare().expect("anew");
    assert_ne!(bytes("tokens.bin"), first);
    assert_eq!(desk.open().expect("mapped").len(), opened.len() + 1);
    // Who mapped the old store still reads it.
    assert_eq!(opened.ids(1), b"hello".map(u32::from));
    assert_eq!(desk.left(), ["store", "text"]);
}

#[test]
fn settings_that_changed_are_named_with_both_values() {
    let mut desk = Desk::prepared();
    desk.rules.max_len = 12;
    let error = desk.open().expect_err("outdated");
    let rest = ": made with exec.data.max_len = 16, now it is 12: run `dflash prepare` again, \
                or set exec.data.max_len back";
    desk.says(&error, DataErrorKind::Usage, rest);
    desk.rules = Rules::new(16);
    desk.rules.over_long = OverLong::Truncate;
    let error = desk.open().expect_err("outdated").to_string();
    assert!(
        error.contains("exec.data.bad_share_max = 1, now it is 0.01"),
        "{error}"
    );
    let mut desk = Desk::prepared();
    let file = write(desk.folder.path(), "tok/tokenizer.json", CHATML_TOKENIZER);
    desk.tokenizer = Tokenizer::from_file(&file).expect("tokenizer");
    let error = desk.open().expect_err("outdated").to_string();
    assert!(
        error.contains("exec.data.tokenizer = byte, now it is "),
        "{error}"
    );
}

#[test]
fn another_template_is_another_store() {
    let mut desk = Desk::new();
    let file = write(desk.folder.path(), "tok/tokenizer.json", CHATML_TOKENIZER);
    desk.tokenizer = Tokenizer::from_file(&file).expect("tokenizer");
    desk.rules.min_loss_tokens = 1;
    desk.prepare().expect("a store");
    desk.open().expect("up to date");
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    write(desk.folder.path(), "tok/chat_template.jinja", template);
    let error = desk.open().expect_err("outdated").to_string();
    assert!(
        error.contains("exec.data.chat_template = built-in, now it is "),
        "{error}"
    );
    desk.prepare().expect("a store");
    desk.open().expect("up to date");
    let value = minijinja::Value::from(true);
    desk.rules
        .template_values
        .insert("enable_thinking".into(), value);
    desk.open().expect_err("outdated");
}

#[test]
fn sources_that_changed_are_named() {
    let desk = Desk::prepared();
    let a = desk.folder.path().join("text/a.jsonl");
    let source = |how: &str| {
        format!(
            ": the source {} {how}: run `dflash prepare` again",
            a.display()
        )
    };
    let touched = |text: &str| {
        fs::write(&a, text).expect("write");
        let file = fs::File::options().append(true).open(&a).expect("open");
        file.set_modified(std::time::UNIX_EPOCH)
            .expect("set the time");
        desk.open()
    };
    let error = touched("{}").expect_err("shorter");
    let how = format!("has 2 bytes, it had {}", LINES.len());
    desk.says(&error, DataErrorKind::Usage, &source(&how));
    let error = touched(&LINES.replace("hello", "HELLO")).expect_err("other contents");
    desk.says(
        &error,
        DataErrorKind::Usage,
        &source("has other contents than it had"),
    );
    // The same contents under another time are the same.
    touched(LINES).expect("up to date");
    write(desk.folder.path(), "text/aa.txt", "new");
    let error = desk.open().expect_err("one more").to_string();
    assert!(error.contains("text/aa.txt is new: "), "{error}");
    fs::remove_file(desk.folder.path().join("text/aa.txt")).expect("remove");
    fs::remove_file(&a).expect("remove");
    let error = desk.open().expect_err("one fewer").to_string();
    assert!(
        error.contains("text/a.jsonl is gone or comes at another place: "),
        "{error}"
    );
    // Without any of its sources a store is all there is.
    fs::remove_dir_all(desk.folder.path().join("text")).expect("remove");
    assert_eq!(desk.open().expect("alone").len(), 6);
}

#[test]
fn a_store_that_is_not_there_says_how_to_make_it() {
    let desk = Desk::new();
    let error = desk.open().expect_err("nothing there");
    let rest = ": no token store here: run `dflash prepare` first";
    desk.says(&error, DataErrorKind::Usage, rest);
    write(&desk.store(), "manifest.json", "{\"kind\": \"other\"}");
    let error = desk.open().expect_err("something else");
    let rest = ": holds other things than a token store: name another folder";
    desk.says(&error, DataErrorKind::Usage, rest);
    let error = desk.prepare().expect_err("never overwritten");
    desk.says(&error, DataErrorKind::Usage, rest);
    assert!(desk.file("manifest.json").exists());
}

#[test]
fn every_damage_has_its_own_message() {
    let broken = |name: &str, change: &dyn Fn(&mut Vec<u8>), rest: &str| {
        let desk = Desk::prepared();
        desk.spoil(name, change);
        let error = desk.open().expect_err("damaged");
        desk.says(
            &error,
            DataErrorKind::Content,
            &format!("/{name}: {rest}{AGAIN}"),
        );
    };
    for part in layout::Part::ALL {
        let desk = Desk::prepared();
        let bytes = fs::read(desk.file(part.name())).expect("a file").len();
        let cut = format!("{} bytes, {bytes} were written", bytes - 1);
        broken(part.name(), &|bytes| bytes.truncate(bytes.len() - 1), &cut);
        let other = "does not begin as this file of a token store does";
        broken(part.name(), &|bytes| bytes[3] ^= 1, other);
        broken(part.name(), &|bytes| bytes[12] ^= 7, other);
    }
    let version = |bytes: &mut Vec<u8>| {
        let text = String::from_utf8(std::mem::take(bytes)).expect("UTF-8");
        *bytes = text.replace("\"format\": 1", "\"format\": 2").into_bytes();
    };
    broken("manifest.json", &version, "format 2, this version reads 1");
    let desk = Desk::prepared();
    fs::remove_file(desk.file("mask.bin")).expect("remove");
    let error = desk.open().expect_err("missing");
    let rest = format!("/mask.bin: is missing from the token store{AGAIN}");
    desk.says(&error, DataErrorKind::Content, &rest);
    let desk = Desk::prepared();
    desk.spoil("manifest.json", |bytes| bytes.truncate(bytes.len() / 2));
    let error = desk.open().expect_err("cut").to_string();
    assert!(
        error.contains("manifest.json: damaged: EOF while parsing"),
        "{error}"
    );
}

#[test]
fn flipped_bytes_are_found_at_once_in_small_files_and_by_verify_in_all() {
    for part in layout::Part::ALL {
        let desk = Desk::prepared();
        desk.spoil(part.name(), |bytes| bytes[HEADER_BYTES] ^= 1);
        let error = desk.verify().expect_err("flipped");
        assert!(
            matches!(&error, DataError::Store(StoreError::Checksum { .. })),
            "{error}"
        );
        assert!(error.to_string().contains(part.name()), "{error}");
        let large = matches!(part, layout::Part::Tokens | layout::Part::Mask);
        assert_eq!(desk.open().is_ok(), large, "{}", part.name());
    }
}

#[test]
fn no_byte_of_a_store_can_make_opening_it_panic() {
    let desk = Desk::prepared();
    let names = layout::Part::ALL.map(layout::Part::name);
    for name in names.into_iter().chain(["manifest.json"]) {
        let whole = fs::read(desk.file(name)).expect("a file");
        // The manifest is the longest and every opening parses it.
        let step = if name.ends_with(".json") { 7 } else { 1 };
        for at in (0..whole.len()).step_by(step) {
            let mut spoilt = whole.clone();
            spoilt[at] = spoilt[at].wrapping_add(0x55);
            fs::write(desk.file(name), spoilt).expect("write");
            if let Ok(dataset) = desk.open() {
                dataset.digest();
                dataset.dropped().count();
            }
        }
        fs::write(desk.file(name), whole).expect("write");
    }
    desk.verify().expect("whole again");
}

#[test]
fn entries_that_point_out_of_their_files_are_refused_even_with_the_right_sum() {
    let entry = |change: fn(&mut Entry), reason: &str| {
        let desk = Desk::prepared();
        desk.spoil("index.bin", |bytes| {
            let mut entry = Entry::read(&bytes[HEADER_BYTES..], 1);
            change(&mut entry);
            bytes[HEADER_BYTES + 32..HEADER_BYTES + 64].copy_from_slice(&entry.to_bytes());
        });
        let sum = crc32fast::hash(&fs::read(desk.file("index.bin")).expect("a file"));
        let mut manifest = manifest::Manifest::read(&desk.store()).expect("a manifest");
        manifest.files.get_mut("index.bin").expect("listed").crc32 = sum;
        fs::write(desk.file("manifest.json"), manifest.render().expect("JSON")).expect("write");
        let error = desk.open().expect_err("out of its file");
        let rest = format!("/index.bin: entry 1: {reason}{AGAIN}");
        desk.says(&error, DataErrorKind::Content, &rest);
    };
    entry(
        |e| e.start += 1,
        "it does not begin where the one before ends",
    );
    entry(
        |e| e.length = 0,
        "it does not begin where the one before ends",
    );
    entry(|e| e.length = u32::MAX, "it ends behind the tokens");
    entry(|e| e.name_end = u64::MAX, "its name ends behind the names");
    entry(|e| e.file = 2, "its source is not listed");
}

/// Stops once so many bytes were read.
struct StopsAt {
    bytes: u64,
    read: AtomicU64,
    stopped: AtomicBool,
}

impl Watch for StopsAt {
    fn total(&self, _: u64) {}

    fn advanced(&self, bytes: u64) {
        let read = self.read.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.stopped.fetch_or(read >= self.bytes, Ordering::SeqCst);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

#[test]
fn a_stopped_or_failed_run_leaves_the_old_store_and_nothing_else() {
    let desk = Desk::prepared();
    let before = fs::read(desk.file("manifest.json")).expect("a manifest");
    for bytes in [0, 1, 200] {
        let watch = StopsAt {
            bytes,
            read: AtomicU64::new(0),
            stopped: AtomicBool::new(bytes == 0),
        };
        let error = prepare(&desk.store(), &desk.recipe(), &watch).expect_err("stopped");
        assert_eq!(error.kind(), DataErrorKind::Stopped);
    }
    write(
        desk.folder.path(),
        "text/z.jsonl",
        "{\"input_ids\": [999], \"loss_mask\": [1]}",
    );
    desk.prepare().expect_err("no such id");
    assert_eq!(
        fs::read(desk.file("manifest.json")).expect("a manifest"),
        before
    );
    assert_eq!(desk.left(), ["store", "text"]);
}

#[test]
fn what_a_killed_run_left_is_cleared_and_a_running_one_is_not_disturbed() {
    let desk = Desk::new();
    let stale = write(desk.folder.path(), ".store.preparing/tokens.bin", "half");
    desk.prepare().expect("a store");
    assert!(!stale.exists());
    let lock = write(desk.folder.path(), ".store.preparing/lock", "");
    let held = fs::File::open(&lock).expect("the lock");
    held.lock().expect("locked");
    let error = desk.prepare().expect_err("busy");
    let rest = ": another `dflash prepare` is writing this store: wait for it";
    desk.says(&error, DataErrorKind::Usage, rest);
    assert!(lock.exists());
}

#[test]
fn a_store_where_none_can_be_says_so() {
    let desk = Desk::new();
    let file = write(desk.folder.path(), "file", "");
    let below = file.join("store");
    let error = prepare(&below, &desk.recipe(), &Unwatched).expect_err("no folder");
    assert_eq!(error.kind(), DataErrorKind::Io);
    assert!(
        error
            .to_string()
            .ends_with("; free space or name another folder"),
        "{error}"
    );
    let error = open(Path::new(&file), &desk.recipe()).expect_err("a file");
    assert!(
        error
            .to_string()
            .ends_with("file: no token store here: run `dflash prepare` first")
    );
}
