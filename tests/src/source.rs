//! Reads source files as the rules in `tidy` see them: without comments, without the text of string literals, and without unit tests,
//! which are modules under `#[cfg(test)]`, in the same file or in one of their own.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One source file.
#[derive(Debug)]
pub struct Source {
    /// Path relative to the workspace root.
    pub path: String,
    /// As written.
    pub text: String,
    /// Production code only: comments, string contents and modules under `#[cfg(test)]` are blanks; lines keep their numbers.
    pub code: String,
}

impl Source {
    /// Lines of production code that contain `needle`, as `path:line: text` of the original.
    #[must_use]
    pub fn lines_with(&self, needle: &str) -> Vec<String> {
        self.code
            .lines()
            .zip(self.text.lines())
            .enumerate()
            .filter(|(_, (code, _))| code.contains(needle))
            .map(|(i, (_, text))| format!("{}:{}: {}", self.path, i + 1, text.trim()))
            .collect()
    }
}

/// All `.rs` files below the given folders of the workspace, sorted, without tests, benchmarks and examples.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn production(root: &Path, folders: &[&str]) -> Vec<Source> {
    let mut sources = everything(root, folders);
    let tests: HashSet<String> = sources.iter().flat_map(|s| test_modules(&s.path, &scrub(&s.text))).collect();
    sources.retain(|s| {
        let in_test_module = |module: &String| s.path == format!("{module}.rs") || s.path.starts_with(&format!("{module}/"));
        let aside = ["/tests/", "/benches/", "/examples/"].iter().any(|folder| s.path.contains(folder))
            // Research, which nothing imports: only where it is asked for by name.
            || s.path.starts_with("common/papers/") && !folders.iter().any(|folder| folder.starts_with("common/papers"));
        !aside && !tests.iter().any(in_test_module)
    });
    assert!(!sources.is_empty(), "there is code below {folders:?}");
    sources
}

/// All `.rs` files below the given folders of the workspace, sorted, tests included.
///
/// # Panics
/// When a folder cannot be read.
#[must_use]
pub fn everything(root: &Path, folders: &[&str]) -> Vec<Source> {
    let mut files = Vec::new();
    for folder in folders {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
            let code = without_unit_tests(&scrub(&text));
            Source { path, text, code }
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

const TEST_ONLY: &str = "#[cfg(test)]";

/// What follows an occurrence of `#[cfg(test)]`: the name of a module and the byte after it, if it is one.
fn test_module(code: &str, at: usize) -> Option<(&str, usize)> {
    let mut rest = code[at + TEST_ONLY.len()..].trim_start();
    // Further attributes, then visibility.
    while rest.starts_with("#[") {
        rest = rest[rest.find(']')? + 1..].trim_start();
    }
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after.trim_start();
        if rest.starts_with('(') {
            rest = rest[rest.find(')')? + 1..].trim_start();
        }
    }
    let name = rest.strip_prefix("mod ")?.trim_start();
    let length = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let end = code.len() - name.len() + length;
    Some((&name[..length], end))
}

/// Paths (without `.rs`) of the modules in files of their own that a file declares for tests only.
fn test_modules(path: &str, scrubbed: &str) -> Vec<String> {
    let folder = match path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    };
    let modules = scrubbed.match_indices(TEST_ONLY).filter_map(|(at, _)| test_module(scrubbed, at));
    modules.filter(|(_, end)| scrubbed[*end..].trim_start().starts_with(';')).map(|(name, _)| format!("{folder}/{name}")).collect()
}

/// Blanks the modules under `#[cfg(test)]` that are in the file itself.
fn without_unit_tests(scrubbed: &str) -> String {
    let mut code = String::with_capacity(scrubbed.len());
    let mut from = 0;
    for (at, _) in scrubbed.match_indices(TEST_ONLY) {
        let Some((_, end)) = test_module(scrubbed, at).filter(|_| at >= from) else { continue };
        if !scrubbed[end..].trim_start().starts_with('{') {
            continue;
        }
        let mut depth = 0usize;
        let close = scrubbed[end..].char_indices().find(|(_, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            *c == '}' && depth == 0
        });
        let stop = close.map_or(scrubbed.len(), |(i, _)| end + i + 1);
        code.push_str(&scrubbed[from..at]);
        code.extend(scrubbed[at..stop].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        from = stop;
    }
    code.push_str(&scrubbed[from..]);
    code
}

/// Replaces comments and the contents of string and character literals by blanks.
#[must_use]
pub fn scrub(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let next = chars.get(i + 1).copied();
        let end = match chars[i] {
            '/' if next == Some('/') => position(&chars, i, |c, at| c[at] == '\n'),
            '/' if next == Some('*') => block_comment_end(&chars, i),
            '"' => string_end(&chars, i + 1),
            'r' if !is_word(chars.get(i.wrapping_sub(1))) && matches!(next, Some('"' | '#')) => match raw_string_end(&chars, i) {
                Some(end) => end,
                None => i + 1,
            },
            '\'' => match character_end(&chars, i) {
                Some(end) => end,
                None => i + 1,
            },
            _ => i + 1,
        };
        if end == i + 1 {
            out.push(chars[i]);
        } else {
            // Quotes stay, so that an empty literal is still seen as one.
            for (at, &c) in chars[i..end].iter().enumerate() {
                let edge = (at == 0 || at + 1 == end - i) && matches!(c, '"' | '\'');
                out.push(if c == '\n' || edge { c } else { ' ' });
            }
        }
        i = end;
    }
    out
}

fn is_word(c: Option<&char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || *c == '_')
}

fn position(chars: &[char], from: usize, found: impl Fn(&[char], usize) -> bool) -> usize {
    (from..chars.len()).find(|&at| found(chars, at)).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_string_end(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let close = |c: &[char], at: usize| c[at] == '"' && c.len() > at + hashes && c[at + 1..=at + hashes].iter().all(|c| *c == '#');
    Some((position(chars, open + 1, close) + 1 + hashes).min(chars.len()))
}

/// `'a'` and `'\n'` are characters; `'a` is a lifetime.
fn character_end(chars: &[char], start: usize) -> Option<usize> {
    match chars.get(start + 1)? {
        '\\' => Some((position(chars, start + 3, |c, at| c[at] == '\'') + 1).min(chars.len())),
        _ if chars.get(start + 2) == Some(&'\'') => Some(start + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_become_blanks() {
        let text = "let a = \"x // y\"; // .unwrap()\nlet b: &'static str = r#\"q\"z\"#; /* outer /* inner */ after */ let c = '\\''; let d = '\"'; e()";
        let code = scrub(text);
        assert_eq!(code.chars().count(), text.chars().count());
        assert_eq!(code.lines().count(), 2);
        for gone in ["x // y", "unwrap", "q\"z", "outer", "inner", "after"] {
            assert!(!code.contains(gone), "{gone} in {code}");
        }
        for kept in ["let a", "let b: &'static str", "let c = '", "let d = '", "e()"] {
            assert!(code.contains(kept), "{kept} not in {code}");
        }
    }

    #[test]
    fn unit_tests_are_not_production_code() {
        let code = without_unit_tests("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn t() { x.unwrap() }\n}\nfn b() {}\n");
        assert!(code.contains("fn a") && code.contains("fn b") && !code.contains("unwrap") && code.lines().count() == 6);
        // A declaration at the top leaves the rest of its file alone.
        let code = without_unit_tests("#[cfg(test)]\nmod tests;\nfn a() { x.unwrap() }\n#[cfg(test)]\nuse b;\n");
        assert!(code.contains("unwrap"));
    }

    #[test]
    fn test_modules_in_files_of_their_own_are_found() {
        let code = "#[cfg(test)]\nmod tests;\n#[cfg(test)] #[allow(x)] pub(crate) mod testing;\nmod real;\n#[cfg(test)]\nmod inline { }\n";
        assert_eq!(test_modules("a/src/lib.rs", code), ["a/src/tests", "a/src/testing"]);
        assert_eq!(test_modules("a/src/ledger.rs", code), ["a/src/ledger/tests", "a/src/ledger/testing"]);
    }
}
