//! The program is small enough to be read.

/// Lines of code, without comments and empty lines, of the library and the program.
#[test]
fn the_program_has_at_most_600_lines() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = std::fs::read_dir(sources).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines: usize = files.map(|text| text.lines().filter(code).count()).sum();
    assert!((400..=600).contains(&lines), "{lines}");
}
