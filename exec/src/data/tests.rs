//! Loads from files on disk: every rule, format and message, as a user meets them.

use std::path::{Path, PathBuf};

use tokenizers::TokenizerImpl;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::testing::{CHATML_TOKENIZER, write};
use super::*;

/// A folder with one file in it, and what loading that file gives.
struct Case {
    folder: tempfile::TempDir,
    path: PathBuf,
    rules: Rules,
    tokenizer: Tokenizer,
}

fn case(name: &str, contents: impl AsRef<[u8]>) -> Case {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = write(folder.path(), name, contents);
    Case {
        folder,
        path,
        rules: Rules::new(64),
        tokenizer: Tokenizer::byte(),
    }
}

impl Case {
    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }

    fn load(&self) -> Result<Dataset, DataError> {
        load(
            std::slice::from_ref(&self.path),
            &self.tokenizer,
            &self.rules,
        )
    }

    #[track_caller]
    fn dataset(&self) -> Dataset {
        self.load().expect("the file must load")
    }

    /// Expects an error that reads `path` + `rest`.
    #[track_caller]
    fn fails(&self, kind: DataErrorKind, rest: &str) {
        let error = self.load().expect_err("the load must fail");
        assert_eq!(error.to_string(), format!("{}{rest}", self.path.display()));
        assert_eq!(error.kind(), kind);
    }
}

#[test]
fn formats_may_be_mixed_line_by_line() {
    let lines = concat!(
        "\u{FEFF}{\"text\": \"hello\"}\r\n",
        "\n",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"abc\"}]}\n",
        "{\"input_ids\": [1, 2, 3], \"loss_mask\": [0, 1, 1]}",
    );
    let dataset = case("d.jsonl", lines).dataset();
    assert_eq!(dataset.lengths(), [5, 8, 3]);
    assert_eq!(dataset.ids(0), b"hello".map(u32::from));
    assert_eq!(dataset.mask(1), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(dataset.mask(2), [0, 1, 1]);
    assert!(dataset.place(2).to_string().ends_with("d.jsonl:4"));
    assert_eq!(dataset.counts().blank_lines, 1);
    assert_eq!(
        dataset.counts().to_string(),
        "1 files, 3 records, 3 samples"
    );
}

#[test]
fn loading_twice_gives_one_digest_and_other_text_another() {
    let digest = |text: &str| case("a.txt", text).dataset().digest();
    assert_eq!(digest("one text"), digest("one text"));
    assert_ne!(digest("one text"), digest("one next"));
}

#[test]
fn plain_text_becomes_chunks_that_know_their_line() {
    let case = case("a.rs", "line 1\nline 2\nline 3\n")
        .with(|r| r.plain = PlainText::Chunks { tokens_max: 8 });
    let dataset = case.dataset();
    assert_eq!(dataset.lengths(), [8, 8, 5]);
    assert_eq!(
        (0..3).map(|i| dataset.place(i).line).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(dataset.loss_tokens(), 21);
    let all: Vec<u32> = (0..3).flat_map(|i| dataset.ids(i).to_vec()).collect();
    assert_eq!(
        case.tokenizer.decode(&all).expect("bytes"),
        "line 1\nline 2\nline 3\n"
    );
}

#[test]
fn chunks_go_on_across_blocks() {
    let text = "a line of text\n".repeat(10_000);
    let case = case("a.txt", &text).with(|r| {
        r.max_len = 100_000;
        r.plain = PlainText::Chunks {
            tokens_max: 100_000,
        };
    });
    let dataset = case.dataset();
    assert_eq!(dataset.lengths(), [100_000, 50_000]);
    // Byte 100,000 lies in the line that begins at 15 × 6,666.
    assert_eq!(dataset.place(1).line, 6_667);
}

#[test]
fn a_whole_file_obeys_the_rule_for_length() {
    let whole = |over_long| {
        case("a.txt", "x".repeat(100))
            .with(|r| (r.plain, r.over_long) = (PlainText::Whole, over_long))
    };
    assert_eq!(whole(OverLong::Truncate).dataset().lengths(), [64]);
    whole(OverLong::Reject).fails(
        DataErrorKind::Content,
        ":1: 100 tokens, more than max_len = 64; raise max_len, or set over_long = \"truncate\" or \"skip\"",
    );
    let error = whole(OverLong::Skip).load().expect_err("nothing left");
    assert_eq!(
        error.to_string(),
        "no training samples left: 1 files, 1 records, 0 samples, 1 over max_len; \
         raise max_len above 64 or set over_long = \"truncate\""
    );
}

#[test]
fn truncation_is_counted_and_comes_before_the_loss_rules() {
    let long = "x".repeat(80);
    // Cut at 64, the first keeps loss tokens and the second loses its answer.
    let lines =
        format!("{{\"text\": \"{long}\"}}\n{{\"prompt\": \"{long}\", \"response\": \"yes\"}}\n");
    let dataset = case("d.jsonl", lines)
        .with(|r| r.over_long = OverLong::Truncate)
        .dataset();
    let counts = dataset.counts();
    assert_eq!(
        (
            counts.records,
            counts.accepted,
            counts.truncated,
            counts.all_masked
        ),
        (2, 1, 1, 1)
    );
}

#[test]
fn every_drop_is_counted_once() {
    let lines = concat!(
        "{\"text\": \"\"}\n",
        "{\"messages\": []}\n",
        "{\"input_ids\": [1, 2], \"loss_mask\": [0, 0]}\n",
        "{\"input_ids\": [1, 2], \"loss_mask\": [0, 1]}\n",
        "{\"text\": \"good\"}\n",
        "garbage\n",
    );
    let long = format!("{lines}{{\"text\": \"{}\"}}\n", "x".repeat(65));
    let case =
        case("d.jsonl", long).with(|r| (r.on_bad_line, r.bad_share_max) = (OnBadLine::Skip, 1.0));
    let dataset = case.dataset();
    let expected = Counts {
        records: 7,
        accepted: 1,
        bad: 1,
        empty: 2,
        all_masked: 1,
        too_few_loss_tokens: 1,
        over_long: 1,
        loss_tokens: 70,
        loss_tokens_kept: 4,
        files: 1,
        ..Counts::default()
    };
    assert_eq!(dataset.counts(), &expected);
    let dropped: Vec<_> = dataset
        .dropped()
        .map(|(at, why)| (at.line, why.name()))
        .collect();
    assert_eq!(
        dropped,
        [
            (1, "empty"),
            (2, "empty"),
            (3, "all_masked"),
            (4, "too_few_loss_tokens"),
            (6, "bad"),
            (7, "over_long"),
        ]
    );
    assert_eq!(dataset.clone().subset(0, 1).dropped().len(), 6);
    assert_eq!(
        expected.to_string(),
        "1 files, 7 records, 1 samples, 1 bad, 2 empty, 1 without a loss token, \
         1 with too few loss tokens, 1 over max_len, 5.71 % of 70 loss tokens kept"
    );
}

#[test]
fn nothing_left_says_why_and_what_to_change() {
    let message = |contents: &str| {
        let case = case("d.jsonl", contents).with(|r| r.on_bad_line = OnBadLine::Skip);
        let error = case.load().expect_err("nothing left");
        assert_eq!(error.kind(), DataErrorKind::Content);
        error.to_string()
    };
    let start = "no training samples left: 1 files, ";
    assert_eq!(
        message(""),
        format!("{start}0 records, 0 samples; name a file or folder that holds text")
    );
    assert_eq!(
        message("{\"text\": \"\"}"),
        format!("{start}1 records, 0 samples, 1 empty; fill the empty records")
    );
    assert_eq!(
        message("{\"text\": \"a\"}"),
        format!(
            "{start}1 records, 0 samples, 1 with too few loss tokens; \
             lower min_loss_tokens below 2 or use longer samples"
        )
    );
    assert_eq!(
        message("{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}]}"),
        format!(
            "{start}1 records, 0 samples, 1 without a loss token; \
             add assistant messages or a loss_mask that holds a 1"
        )
    );
    assert_eq!(
        message("{\n}"),
        format!(
            "{start}2 records, 0 samples, 2 bad; \
             fix the lines, or see the first one with on_bad_line = \"stop\""
        )
    );
}

#[test]
fn an_empty_plain_file_is_one_empty_record() {
    let error = case("a.txt", "").load().expect_err("nothing left");
    let expected =
        "no training samples left: 1 files, 1 records, 0 samples, 1 empty; fill the empty records";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_folder_of_binaries_says_so() {
    let case = case("a/b.bin", b"\xFF\x00");
    let error = load(
        &[case.folder.path().to_path_buf()],
        &case.tokenizer,
        &case.rules,
    );
    assert_eq!(
        error.expect_err("nothing left").to_string(),
        "no training samples left: 0 files, 0 records, 0 samples, 1 binary files skipped; \
         name JSONL or UTF-8 text files"
    );
}

#[test]
fn bad_lines_stop_with_file_line_and_column() {
    let way_out = "; fix the line, or set on_bad_line = \"skip\"";
    let good = "{\"text\": \"good\"}\n";
    let bad = |line: &[u8], rest: &str| {
        let contents = [good.as_bytes(), line, b"\n"].concat();
        case("d.jsonl", contents)
            .with(|r| r.line_bytes_max = 100)
            .fails(DataErrorKind::Content, &format!("{rest}{way_out}"));
    };
    bad(b"{\"text\" 1}", ":2:9: not a valid record: expected `:`");
    bad(b"{\"text\": \"\xFF\"}", ":2:11: not valid UTF-8");
    bad(
        b"{\"text\": \"\0\"}",
        ":2:10: not a valid record: control character (\\u0000-\\u001F) found while parsing a string",
    );
    bad(
        &[b'x'; 101],
        ":2: the line is longer than line_bytes_max = 100 bytes",
    );
    bad(
        b"{\"a\": 1}",
        ":2: unknown record with the keys \"a\": accepted are messages, conversations, \
         input_ids + loss_mask or packed_loss_mask, prompt + response, prompt + completion, or text",
    );
}

#[test]
fn skipped_lines_are_counted_and_too_many_are_an_error() {
    let good = "{\"text\": \"good\"}\n";
    let skipping = |bad: usize| {
        let lines = format!("{}{}", "{\n".repeat(bad), good.repeat(200 - bad));
        case("d.jsonl", lines).with(|r| r.on_bad_line = OnBadLine::Skip)
    };
    let dataset = skipping(2).dataset();
    assert_eq!((dataset.len(), dataset.counts().bad), (198, 2));
    let case = skipping(3);
    let error = case.load().expect_err("too many");
    assert_eq!(
        error.to_string(),
        format!(
            "3 of 200 records are bad, more than bad_share_max = 0.01 allows (the first: {}:1:1: \
             not a valid record: EOF while parsing an object); fix the data, or raise bad_share_max",
            case.path.display()
        )
    );
    assert_eq!(error.kind(), DataErrorKind::Content);
}

#[test]
fn ids_beyond_the_vocabulary_are_always_an_error() {
    let line = "{\"input_ids\": [1, 272, 3], \"loss_mask\": [1, 1, 1]}";
    let case = case("d.jsonl", line).with(|r| r.on_bad_line = OnBadLine::Skip);
    case.fails(
        DataErrorKind::Content,
        ":1: token 1 of the sample is id 272, but the vocabulary has 272 ids; \
         use the tokenizer the data was made with, or a model with a larger vocabulary",
    );
    assert_eq!(case.with(|r| r.vocab = Some(273)).dataset().len(), 1);
}

#[test]
fn text_files_that_are_no_text_are_refused_when_named() {
    case("a.txt", b"ab\xFF").fails(
        DataErrorKind::Content,
        ": not UTF-8 text at byte 2: decompress it, or convert it to JSONL or UTF-8 text",
    );
}

#[test]
fn inputs_and_rules_are_checked_first() {
    let error = load(&[], &Tokenizer::byte(), &Rules::new(8)).expect_err("no inputs");
    assert_eq!(
        error.to_string(),
        "no input given: name at least one JSONL file, text file or folder"
    );
    assert_eq!(error.kind(), DataErrorKind::Usage);
    let error = case("a.txt", "text")
        .with(|r| r.min_loss_tokens = 65)
        .load()
        .expect_err("rules");
    assert!(
        error.to_string().starts_with("min_loss_tokens = 65: "),
        "{error}"
    );
}

#[test]
fn a_tokenizer_file_counts_lines_and_needs_chat_markers_only_for_chat() {
    let plain = CHATML_TOKENIZER.replace("<|im_end|>", "<|close|>");
    let mut case =
        case("a.txt", "a b\na\nb b\n").with(|r| r.plain = PlainText::Chunks { tokens_max: 2 });
    let file = write(case.folder.path(), "tokenizer.json", plain);
    case.tokenizer = Tokenizer::from_file(&file).expect("tokenizer");
    let dataset = case.dataset();
    assert_eq!(
        (0..2)
            .map(|i| (dataset.ids(i), dataset.place(i).line))
            .collect::<Vec<_>>(),
        [(&[0, 1][..], 1), (&[0, 1][..], 2),]
    );
    case.path = write(
        case.folder.path(),
        "d.jsonl",
        "{\"prompt\": \"a\", \"response\": \"b\"}",
    );
    let error = case.load().expect_err("no markers");
    assert_eq!(
        error.to_string(),
        format!(
            "{}: the tokenizer has no token <|im_end|>, which chat data needs: \
             set chat_template, or use data with input_ids and loss_mask",
            file.display()
        )
    );
    assert_eq!(error.kind(), DataErrorKind::Usage);
}

#[test]
fn a_trained_byte_level_tokenizer_gives_the_text_and_the_lines_back() {
    let text: String = (0..400)
        .map(|i| format!("naïve = “{i}”;\n\n日本語 {}\n", i % 7))
        .collect();
    let mut case = case("a.txt", &text).with(|r| r.min_loss_tokens = 0);
    case.tokenizer = trained_on(&case.path, case.folder.path());
    let dataset = case.dataset();
    assert!(dataset.len() > 20 && dataset.tokens() < text.len() as u64 / 2);
    let mut before = Vec::new();
    for i in 0..dataset.len() {
        let read = case.tokenizer.decode(&before).expect("decode");
        assert_eq!(
            dataset.place(i).line as usize,
            1 + read.matches('\n').count()
        );
        before.extend_from_slice(dataset.ids(i));
    }
    assert_eq!(case.tokenizer.decode(&before).expect("decode"), text);
}

/// A byte-level byte-pair tokenizer, as the large models have it, of 400 tokens.
fn trained_on(text: &Path, folder: &Path) -> Tokenizer {
    let mut trained =
        TokenizerImpl::<BPE, NFC, ByteLevel, ByteLevel, ByteLevel>::new(BPE::default());
    trained.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    trained.with_decoder(Some(ByteLevel::default()));
    let mut trainer = BpeTrainer::builder()
        .vocab_size(400)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    trained
        .train_from_files(&mut trainer, vec![text.display().to_string()])
        .expect("train");
    let path = folder.join("trained.json");
    trained.save(&path, false).expect("save");
    Tokenizer::from_file(&path).expect("tokenizer")
}

#[test]
fn many_batches_keep_the_order_of_the_lines() {
    let line = |i: usize| format!("{{\"text\": \"{i:06} {}\"}}\n", "x".repeat(1000));
    let case = case("d.jsonl", (0..20_000).map(line).collect::<String>()).with(|r| {
        r.over_long = OverLong::Truncate;
    });
    let dataset = case.dataset();
    for i in [0, 1, 8_000, 19_999] {
        let text = case.tokenizer.decode(dataset.ids(i)).expect("bytes");
        assert!(text.starts_with(&format!("{i:06} ")), "{text}");
        assert_eq!(dataset.place(i).line as usize, i + 1);
    }
}

#[test]
fn a_tokenizer_that_fails_names_the_line() {
    let no_unknown = CHATML_TOKENIZER.replace(", \"[UNK]\": 5", "");
    let mut case = case("d.jsonl", "\n{\"text\": \"a what\"}");
    let file = write(case.folder.path(), "tokenizer.json", no_unknown);
    case.tokenizer = Tokenizer::from_file(&file).expect("tokenizer");
    case.fails(
        DataErrorKind::Content,
        ":2: the tokenizer failed: WordLevel error: Missing [UNK] token from the vocabulary; \
         check the tokenizer file, or use the byte tokenizer",
    );
}

#[test]
fn a_record_spoilt_anywhere_never_panics_and_is_always_accounted_for() {
    let good = br#"{"messages": [{"role": "user", "content": "q\u00e9"}, {"role": "assistant", "content": [{"type": "text", "text": "abc"}]}]}"#;
    let mut bytes = Vec::new();
    for position in 0..good.len() {
        for spoilt in [0, b'"', b'}', b'\\', 0xFF, b'9'] {
            let mut line = good.to_vec();
            line[position] = spoilt;
            bytes.extend(line);
            bytes.push(b'\n');
        }
    }
    let case =
        case("d.jsonl", bytes).with(|r| (r.on_bad_line, r.bad_share_max) = (OnBadLine::Skip, 1.0));
    let counts = case.dataset().counts().clone();
    assert_eq!(counts.records, 6 * good.len() as u64);
    assert!(
        counts.balanced() && counts.bad > 0 && counts.accepted > 0,
        "{counts}"
    );
}

#[test]
fn jsonl_may_be_gzip() {
    let lines = "{\"text\": \"hello\"}\n{\"id\": \"b\", \"text\": \"world\"}\n";
    let packed = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    };
    // Two members behind each other, as `cat` joins them.
    let (first, second) = lines.split_once('\n').expect("two lines");
    let joined = [packed(&format!("{first}\n")), packed(second)].concat();
    let dataset = case("d.jsonl.gz", joined).dataset();
    assert_eq!((dataset.len(), dataset.name(1)), (2, Some("b")));
    assert!(dataset.place(1).to_string().ends_with("d.jsonl.gz:2"));
    let cut = &packed(lines)[..20];
    let error = case("d.jsonl.gz", cut).load().expect_err("half a file");
    assert_eq!(error.kind(), DataErrorKind::Io);
    assert!(
        error.to_string().contains("d.jsonl.gz: cannot be read: "),
        "{error}"
    );
}

#[test]
fn tokens_lost_to_the_rules_are_told_as_a_share_of_the_loss() {
    let text = |length: usize| format!("{{\"text\": \"{}\"}}\n", "x".repeat(length));
    let case = case("d.jsonl", [text(60), text(100), text(40)].concat())
        .with(|r| r.over_long = OverLong::Truncate);
    let counts = case.dataset().counts().clone();
    assert_eq!(
        (
            counts.tokens_cut,
            counts.loss_tokens,
            counts.loss_tokens_kept
        ),
        (36, 200, 164)
    );
    assert!(counts.is_notable());
    assert_eq!(
        counts.to_string(),
        "1 files, 3 records, 3 samples, 1 truncated, 36 tokens cut off, 82.00 % of 200 loss tokens kept"
    );
}

#[test]
fn repeated_ids_are_counted_and_kept() {
    let lines =
        "{\"id\": 1, \"text\": \"aa\"}\n{\"id\": \"1\", \"text\": \"bb\"}\n{\"text\": \"cc\"}\n";
    let dataset = case("d.jsonl", lines).dataset();
    assert_eq!((dataset.len(), dataset.counts().ids_repeated), (3, 1));
    let expected = "1 files, 3 records, 3 samples, 1 with the id of an earlier one";
    assert_eq!(dataset.counts().to_string(), expected);
}

#[test]
fn a_template_that_refuses_a_record_is_quoted_with_the_line() {
    let template = "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}\
        {% for m in messages %}{{ m.content }};{% endfor %}";
    let record =
        |role: &str| format!("{{\"messages\": [{{\"role\": \"{role}\", \"content\": \"hi\"}}]}}\n");
    let with = |r: &mut Rules| {
        r.chat_template = Some(TemplateSource::inline(template, "t"));
        r.loss_on = LossOn::All;
    };
    let case = case("d.jsonl", [record("user"), record("assistant")].concat()).with(with);
    case.fails(
        DataErrorKind::Content,
        ":2: the chat template refuses the conversation: \"user first\"; \
         fix the line, or set on_bad_line = \"skip\"",
    );
    let case = case.with(|r| (r.on_bad_line, r.bad_share_max) = (OnBadLine::Skip, 1.0));
    let dataset = case.dataset();
    assert_eq!((dataset.counts().bad, dataset.mask(0)), (1, &[1, 1, 1][..]));
}

#[test]
fn a_template_that_hides_every_answer_says_what_to_change() {
    let record = "{\"prompt\": \"q\", \"response\": \"answer\"}\n";
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}";
    let case = case("d.jsonl", record)
        .with(|r| r.chat_template = Some(TemplateSource::inline(template, "t")));
    let error = case.load().expect_err("nothing left");
    assert_eq!(
        error.to_string(),
        "no training samples left: 1 files, 1 records, 0 samples, 1 without a loss token; \
         set chat_template to one whose last answer begins with its generation prompt, or that marks \
         it with {% generation %}"
    );
}
