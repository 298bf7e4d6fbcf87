//! `e2e/COVERAGE.md` names tests that exist, and leaves out none that is named after one of its rows.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Names of the test functions in a folder.
fn tests_in(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            names.extend(tests_in(&entry));
            continue;
        }
        let text = fs::read_to_string(&entry).unwrap();
        let mut lines = text.lines().map(str::trim);
        while lines.by_ref().any(|line| line == "#[test]") {
            let function = lines.next().and_then(|line| line.strip_prefix("fn ")).expect("a function");
            names.insert(function.split('(').next().unwrap().to_owned());
        }
    }
    names
}

#[test]
fn tests_that_are_named_exist_and_the_other_way_round() {
    let text = fs::read_to_string("e2e/COVERAGE.md").unwrap();
    let marker = "`tests/cluster` `";
    let named =
        text.match_indices(marker).map(|(at, _)| text[at + marker.len()..].split('`').next().unwrap());
    let named: BTreeSet<_> = named.map(str::to_owned).collect();
    let tests = tests_in(Path::new("tests/cluster"));
    assert!(named.len() > 30 && tests.len() > 40, "{} names, {} tests", named.len(), tests.len());
    let missing: Vec<_> = named.difference(&tests).collect();
    assert!(missing.is_empty(), "named, but no test: {missing:?}");

    let is_row = |name: &&String| {
        let (row, number) = name.split_at(1);
        let digits = number.get(..2).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        "elr".contains(row) && digits && number.as_bytes().get(2) == Some(&b'_')
    };
    let unnamed: Vec<_> = tests.difference(&named).filter(is_row).collect();
    assert!(unnamed.is_empty(), "tests of rows that the page does not name: {unnamed:?}");
    assert!(tests.iter().filter(is_row).count() > 20);
}

#[test]
fn every_row_has_a_test_or_says_why_not() {
    let text = fs::read_to_string("e2e/COVERAGE.md").unwrap();
    let mut rows = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| row")) {
        let cells: Vec<_> = line.split(" | ").collect();
        if let [row, _, test] = cells[..] {
            assert!(test.starts_with("`tests/") || test.starts_with("open"), "{line}");
            rows.insert(row.trim_start_matches("| ").to_owned());
        }
    }
    let ours = (1..=21).map(|row| format!("E{row}")).chain((1..=8).map(|row| format!("R{row}")));
    let ours = ours.chain(["L6", "L8", "L9", "L14", "L16"].map(str::to_owned));
    let left_out: Vec<_> = ours.filter(|row| !rows.contains(row)).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}
