//! What files and flags load to, and what is said when they do not.

use super::testing::{loaded, loaded_with};
use super::*;
use serde::Deserialize;

/// The errors of loading one file with these bytes.
fn broken(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(&file, bytes).unwrap();
    let error = load(&[file], &[]).unwrap_err();
    assert_eq!(error.code(), 2);
    let prefix = format!("{}/", folder.path().display());
    error.to_string().replace(&prefix, "")
}

fn table(text: &str) -> Table {
    toml::from_str(text).unwrap()
}

#[test]
fn files_merge_left_to_right_and_flags_come_last() {
    let base = "a = 1\nlist = [1, 2, 3]\n[t]\nx = 1\ny = 1\n[t.u]\nz = 1";
    let over = "list = [9]\n[t]\ny = 2\n[t.u]\nw = 2";
    let loaded = loaded_with(&[base, over], &["t.u.z=3", "new.key=word"]).unwrap();
    let expected = "a = 1\nlist = [9]\nnew.key = 'word'\n[t]\nx = 1\ny = 2\n[t.u]\nz = 3\nw = 2";
    assert_eq!(loaded.table(), &table(expected));
}

#[test]
fn arrays_of_tables_replace_and_flags_reach_into_them() {
    let base = "[[policy]]\na = 1\n[[policy]]\na = 2";
    let over = "[[policy]]\na = 3\n[[policy]]\nb = 4";
    let both = loaded_with(&[base, over], &["policy[0].c=5"]).unwrap();
    assert_eq!(
        both.table(),
        &table("policy = [ { a = 3, c = 5 }, { b = 4 } ]")
    );
    let each = loaded_with(&[base], &["policy.a=7"]).unwrap();
    assert_eq!(each.table(), &table("policy = [ { a = 7 }, { a = 7 } ]"));
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    seed: u32,
    #[serde(default)]
    queue: Queue,
    #[serde(default)]
    ratio: Option<f64>,
    #[serde(default)]
    rows: Vec<Row>,
    #[serde(default)]
    shape: Option<Shape>,
    #[serde(default)]
    size: Option<sim::spec::ByteSize>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Queue {
    #[default]
    Fifo,
    PerDrafter,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    depth_total: u8,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Shape {
    Constant(u32),
    Uniform { min: u32, max: u32 },
    Listed(Vec<u32>),
    Data,
}

fn refused(text: &str) -> String {
    let error = loaded(text).parse::<Scenario>().unwrap_err();
    assert_eq!(error.code(), 2);
    error.to_string()
}

#[test]
fn a_fitting_file_is_read() {
    let text = "
        seed = 7
        queue = 'per-drafter'
        ratio = 3
        rows = [ { depth_total = 4 } ]
        shape = { uniform = { min = 1, max = 2 } }
        size = '36 GiB'
    ";
    let scenario = loaded(text).parse::<Scenario>().unwrap();
    assert_eq!(scenario.seed, 7);
    assert_eq!(scenario.queue, Queue::PerDrafter);
    assert_eq!(scenario.ratio, Some(3.0));
    assert_eq!(scenario.rows, [Row { depth_total: 4 }]);
    assert_eq!(scenario.shape, Some(Shape::Uniform { min: 1, max: 2 }));
    let shape = |shape: &str| {
        let text = format!("seed = 1\nshape = {shape}");
        loaded(&text).parse::<Scenario>().unwrap().shape
    };
    assert_eq!(shape("'data'"), Some(Shape::Data));
    assert_eq!(shape("{ constant = 5 }"), Some(Shape::Constant(5)));
    assert_eq!(
        shape("{ listed = [5, 6] }"),
        Some(Shape::Listed(vec![5, 6]))
    );
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    assert_eq!(
        refused("seed = 1\n\n[[rows]]\ndepth_total = 1\ndepth_totl = 2"),
        "s.toml: rows[0].depth_totl: unknown key, did you mean \"depth_total\"? (line 5)"
    );
    assert_eq!(
        refused("seed = 1\ncolour = 2"),
        "s.toml: colour: unknown key; known here: \"seed\", \"queue\", \"ratio\", \"rows\", \"shape\", \"size\", \"name\" (line 2)"
    );
}

#[test]
fn wrong_types_name_the_value_and_what_is_accepted() {
    for (line, message) in [
        (
            "seed = 'four'",
            "seed: \"four\" is not accepted; write a whole number from 0 to 4294967295",
        ),
        (
            "seed = -1",
            "seed: -1 is not accepted; write a whole number from 0 to 4294967295",
        ),
        (
            "seed = 1.0",
            "seed: 1.0 is not accepted; write a whole number from 0 to 4294967295",
        ),
        (
            "seed = 4294967296",
            "seed: 4294967296 is not accepted; write a whole number from 0 to 4294967295",
        ),
        (
            "seed = [4]",
            "seed: [4] is not accepted; write a whole number from 0 to 4294967295, or its range in [sweep]",
        ),
        (
            "seed = 1979-05-27",
            "seed: 1979-05-27 is not accepted; write a whole number from 0 to 4294967295",
        ),
    ] {
        assert_eq!(refused(line), format!("s.toml: {message} (line 1)"));
    }
    for (line, message) in [
        (
            "ratio = 'a'",
            "ratio: \"a\" is not accepted; write a number",
        ),
        (
            "name = 4",
            "name: 4 is not accepted; write a string in quotes",
        ),
        ("rows = 4", "rows: 4 is not accepted; write an array"),
        ("rows = [4]", "rows: 4 is not accepted; write a table"),
        (
            "rows = [ { depth_total = 256 } ]",
            "rows[0].depth_total: 256 is not accepted; write a whole number from 0 to 255",
        ),
        (
            "size = true",
            "size: true is not accepted; write a whole number of bytes or a text such as \"36 GiB\"",
        ),
        (
            "size = '36 Gib'",
            "size: \"36 Gib\" has the unknown unit \"Gib\"; use one of TiB, GiB, MiB, KiB, TB, GB, MB, kB, KB, B",
        ),
    ] {
        // A row that is wrong is known by its number.
        let message = message.replace(
            "rows: 4 is not accepted; write a table",
            "rows[0]: 4 is not accepted; write a table",
        );
        assert_eq!(
            refused(&format!("seed = 1\n{line}")),
            format!("s.toml: {message} (line 2)")
        );
    }
}

#[test]
fn wrong_choices_name_the_nearest_or_all() {
    for (line, message) in [
        (
            "queue = 'per_drafter'",
            "queue: unknown value \"per_drafter\", did you mean \"per-drafter\"?",
        ),
        (
            "queue = 'x'",
            "queue: unknown value \"x\"; known here: \"fifo\", \"per-drafter\"",
        ),
        (
            "queue = 4",
            "queue: 4 is not accepted; write exactly one of fifo, per-drafter",
        ),
        (
            "shape = { unifrm = { min = 1 } }",
            "shape.unifrm: unknown key, did you mean \"uniform\"?",
        ),
        (
            "shape = { uniform = { min = 1, max = 2, mean = 3 } }",
            "shape.uniform.mean: unknown key; known here: \"min\", \"max\"",
        ),
        (
            "shape = { uniform = { min = 1 } }",
            "shape.uniform: missing key \"max\"; add it",
        ),
        (
            "shape = { constant = 'a' }",
            "shape.constant: \"a\" is not accepted; write a whole number from 0 to 4294967295",
        ),
        (
            "shape = { constant = 1, data = 2 }",
            "shape: { constant = 1, data = 2 } is not accepted; write exactly one of constant, uniform, listed, data",
        ),
        (
            "shape = 'uniform'",
            "shape: \"uniform\" alone is not accepted; write { uniform = ... }",
        ),
        (
            "shape = { data = 4 }",
            "shape: { data = 4 } is not accepted; write \"data\"",
        ),
    ] {
        assert_eq!(
            refused(&format!("seed = 1\n{line}")),
            format!("s.toml: {message} (line 2)")
        );
    }
}

#[test]
fn missing_keys_name_what_should_hold_them() {
    assert_eq!(refused("ratio = 4"), "s.toml: missing key \"seed\"; add it");
    assert_eq!(
        refused("seed = 1\n[[rows]]\n[[rows]]"),
        "s.toml: rows[0]: missing key \"depth_total\"; add it (line 2)"
    );
}

#[test]
fn all_wrong_keys_are_reported_in_the_order_of_the_file() {
    let text = "seed = 'a'\nqeue = 'fifo'\nratio = true\nrows = [ { depth_total = -1, x = 1 } ]";
    assert_eq!(
        refused(text),
        "\
s.toml: seed: \"a\" is not accepted; write a whole number from 0 to 4294967295 (line 1)
s.toml: qeue: unknown key, did you mean \"queue\"? (line 2)
s.toml: ratio: true is not accepted; write a number (line 3)
s.toml: rows[0].depth_total: -1 is not accepted; write a whole number from 0 to 255 (line 4)
s.toml: rows[0].x: unknown key; known here: \"depth_total\" (line 4)"
    );
}

#[test]
fn each_key_is_reported_where_it_came_from() {
    let base = "seed = 1\nratio = true\nname = 5\n[[rows]]\nx = 1";
    let over = "\n\nratio = false\n[[rows]]\ny = 1\ndepth_total = 1";
    let loaded = loaded_with(&[base, over], &["seed=five", "size=lots"]).unwrap();
    assert_eq!(
        loaded.parse::<Scenario>().unwrap_err().to_string(),
        "\
--set seed=five: seed: \"five\" is not accepted; write a whole number from 0 to 4294967295
--set size=lots: size: \"lots\" does not begin with a number; write it as in \"36 GiB\"
s.toml: name: 5 is not accepted; write a string in quotes (line 3)
t.toml: ratio: false is not accepted; write a number (line 3)
t.toml: rows[0].y: unknown key; known here: \"depth_total\" (line 5)"
    );
}

#[test]
fn problems_of_a_section_are_reported_in_their_place() {
    let text = "[training]\ngrad_accum = 0\ntoken_budget = 1\nbatch_max = 1";
    let loaded = loaded_with(&[text], &["training.batch_max=0"]).unwrap();
    #[derive(Deserialize)]
    struct Trained {
        training: sim::spec::Training,
    }
    let training = loaded.parse::<Trained>().unwrap().training;
    assert_eq!(
        loaded.check(training.validate("training")).unwrap_err().to_string(),
        "\
--set training.batch_max=0: training.batch_max: 0 must be at least 1; write 1 to train on single samples
s.toml: training.grad_accum: 0 must be at least 1; write 1 to update the weights after every microbatch (line 2)"
    );
    assert_eq!(loaded.check(Vec::new()), Ok(()));
}

#[test]
fn broken_toml_is_reported_with_line_and_column() {
    assert_eq!(
        broken(b"a = 1\nb = \"\xc3\xa9\" x\n"),
        "s.toml: not valid TOML: unexpected key or value, expected newline, `#` (line 2, column 9)"
    );
    assert_eq!(
        broken(b"a = 1\n[t]\nb = 1\nb = 2\n"),
        "s.toml: not valid TOML: duplicate key (line 4, column 1)"
    );
    assert_eq!(
        broken(b"a = 1\nb = 99999999999999999999\n"),
        "s.toml: not valid TOML: whole numbers end at 9223372036854775807 (line 2, column 5)"
    );
    let two = broken(b"a = \nb = 1\nc = \n");
    assert_eq!(two.lines().count(), 2, "{two}");
}

#[test]
fn files_that_are_no_text_are_refused() {
    assert_eq!(
        broken(b"a = 1\nb = \"\xff\"\n"),
        "s.toml: is not UTF-8 (line 2, column 6); save it as UTF-8 text"
    );
    assert_eq!(
        broken(&vec![b'#'; 8_000_001]),
        "s.toml: is larger than 8000000 bytes; keep lengths and tables in files of their own"
    );
    assert_eq!(
        load(&["/nonexistent/s.toml".into()], &[])
            .unwrap_err()
            .to_string(),
        "/nonexistent/s.toml: no such file; check the path"
    );
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        load(&[folder.path().into()], &[]).unwrap_err().to_string(),
        format!(
            "{}: is a directory; name a TOML file in it",
            folder.path().display()
        )
    );
}

#[test]
fn every_file_and_flag_is_tried() {
    let sets = ["a.b=1", "c", "d[2]=3"].map(String::from);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(&file, "a = 1\nd = [1]").unwrap();
    let error = load(&["/nonexistent/s.toml".into(), file], &sets).unwrap_err();
    assert_eq!(
        error.to_string(),
        "\
/nonexistent/s.toml: no such file; check the path
--set a.b=1: a is a number, not a table; drop what follows it
--set c: no value; write it as in training.grad_accum=4
--set d[2]=3: d[2] does not exist, the array has 1 rows; count from 0"
    );
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(broken(deep.as_bytes()).starts_with("s.toml: not valid TOML: "));
}

#[test]
fn files_of_other_systems_are_read() {
    let text = "\u{feff}seed = 1\r\nratio = true\r\n";
    assert_eq!(
        refused(text),
        "s.toml: ratio: true is not accepted; write a number (line 2)"
    );
}

#[test]
fn no_file_at_all_is_named_as_such() {
    let nothing = load(&[], &[]).unwrap();
    assert_eq!(
        nothing.parse::<Scenario>().unwrap_err().to_string(),
        "no file given: missing key \"seed\"; add it"
    );
}

#[test]
fn keys_know_the_file_that_wrote_them() {
    let loaded = loaded_with(&["a.b = 1", "c = 2"], &["d=3"]).unwrap();
    assert_eq!(loaded.file_of("a.b"), Some("s.toml".into()));
    assert_eq!(loaded.file_of("a.b.inside"), Some("s.toml".into()));
    assert_eq!(loaded.file_of("c"), Some("t.toml".into()));
    assert_eq!(loaded.file_of("d"), None);
}
