//! Every relative link of every page leads somewhere, and the guide's table of contents names exactly its pages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use dp_pvi_tests::place::root;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::tree::{files, read};

/// The guide's pages; `book.toml` lies in the folder above.
const GUIDE: &str = "deploy/guide/src/";
const CONTENTS: &str = "deploy/guide/src/SUMMARY.md";

/// What a page offers and what it asks for.
#[derive(Default)]
struct Page {
    /// Names that a fragment may have: of headings, and of `id` attributes.
    anchors: BTreeSet<String>,
    /// Targets of links and pictures, with the line.
    links: Vec<(usize, String)>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut seen = HashMap::<String, usize>::new();
        let mut heading = None::<String>;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES).into_offset_iter() {
            let line = text[..range.start].lines().count().max(1);
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let name = anchor(&heading.take().unwrap_or_default());
                    let times = seen.entry(name.clone()).or_default();
                    page.anchors.insert(if *times == 0 { name } else { format!("{name}-{times}") });
                    *times += 1;
                }
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => page.links.push((line, dest_url.into_string())),
                Event::Html(html) | Event::InlineHtml(html) => {
                    page.links.extend(["href", "src"].iter().flat_map(|name| attributes(&html, name)).map(|target| (line, target)));
                    page.anchors.extend(attributes(&html, "id"));
                }
                _ => {}
            }
        }
        page
    }
}

/// Values of an attribute in a piece of HTML.
fn attributes(html: &str, name: &str) -> Vec<String> {
    let start = format!("{name}=\"");
    let values = html.split(start.as_str()).skip(1);
    values.filter_map(|rest| rest.split_once('"')).map(|(value, _)| value.to_owned()).collect()
}

/// The fragment of a heading, as mdBook and GitHub form it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || c.is_whitespace() || matches!(c, '-' | '_'));
    kept.map(|c| if c.is_whitespace() { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// `folder/../file` without the detour; `None` above the root.
fn plain(path: &Path) -> Option<String> {
    let mut parts = PathBuf::new();
    for part in path.components() {
        let below_the_root = match part {
            Component::Normal(name) => {
                parts.push(name);
                true
            }
            Component::ParentDir => parts.pop(),
            _ => true,
        };
        if !below_the_root {
            return None;
        }
    }
    Some(parts.to_string_lossy().into_owned())
}

/// What is wrong with a link from `from` to `target`, if anything.
fn broken(from: &str, target: &str, pages: &BTreeMap<String, Page>, files: &BTreeSet<String>) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) = target.split_once('#').map_or((target, None), |(path, fragment)| (path, Some(fragment)));
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let Some(file) = (if path.is_empty() { Some(from.to_owned()) } else { plain(&folder.join(path)) }) else {
        return Some("leads out of the repository".into());
    };
    let is_folder = files.iter().any(|f| f.starts_with(&format!("{file}/")));
    if !files.contains(&file) && !is_folder {
        return Some(format!("there is no {file}"));
    }
    if from.starts_with(GUIDE) && !file.starts_with(GUIDE) {
        return Some("leads out of the book, where a reader of the built pages cannot follow: name the file instead".into());
    }
    let fragment = fragment?;
    match pages.get(&file) {
        Some(page) if page.anchors.contains(fragment) => None,
        Some(_) => Some(format!("{file} has no heading #{fragment}")),
        None => Some("a fragment of something that is no page".into()),
    }
}

fn pages() -> BTreeMap<String, Page> {
    let pages: BTreeMap<_, _> =
        files().into_iter().filter(|path| path.ends_with(".md")).map(|path| (path.clone(), Page::parse(&read(&path)))).collect();
    assert!(pages.contains_key("README.md") && pages.contains_key(CONTENTS), "{:?}", pages.keys());
    pages
}

#[test]
fn every_link_leads_somewhere() {
    let (pages, files) = (pages(), files());
    let mut found = Vec::new();
    for (from, page) in &pages {
        for (line, target) in &page.links {
            if let Some(problem) = broken(from, target, &pages, &files) {
                found.push(format!("{from}:{line}: {target}: {problem}"));
            }
        }
    }
    assert!(found.is_empty(), "broken links:\n{}", found.join("\n"));
    assert!(pages["README.md"].links.len() > 5, "links were found at all");
}

/// A page that no chapter names is not built; a chapter without a page would be built empty.
#[test]
fn the_guide_s_contents_name_exactly_its_pages() {
    let pages = pages();
    let named: Vec<_> = pages[CONTENTS].links.iter().map(|(_, target)| format!("{GUIDE}{target}")).collect();
    let there: BTreeSet<_> = pages.keys().filter(|path| path.starts_with(GUIDE) && *path != CONTENTS).cloned().collect();
    assert_eq!(named.iter().cloned().collect::<BTreeSet<_>>(), there, "left: named by SUMMARY.md, right: in the folder");
    assert_eq!(named.len(), there.len(), "every page is named once");
    assert!(root().join("deploy/guide/book.toml").is_file());
}

/// A picture that no page shows is forgotten.
#[test]
fn every_picture_of_the_guide_is_shown() {
    let shown: BTreeSet<_> = pages()
        .iter()
        .flat_map(|(from, page)| {
            let folder = Path::new(from).parent().unwrap_or(Path::new(""));
            page.links.iter().filter_map(|(_, target)| plain(&folder.join(target))).collect::<Vec<_>>()
        })
        .collect();
    let pictures: Vec<_> =
        files().into_iter().filter(|path| path.starts_with(GUIDE) && [".svg", ".png"].iter().any(|e| path.ends_with(e))).collect();
    assert!(!pictures.is_empty());
    let forgotten: Vec<_> = pictures.iter().filter(|path| !shown.contains(*path)).collect();
    assert!(forgotten.is_empty(), "no page shows {forgotten:?}");
}

/// The rules above see what they are for.
#[test]
fn broken_links_are_seen() {
    let text = "# A `b` c\n## A b c\n## Two: three?\n<a id=\"here\"></a>\n[x](y.md#z) ![p](p.png)\n\n| a |\n|---|\n| [t](t.md) |\n";
    let page = Page::parse(text);
    assert_eq!(page.anchors, ["a-b-c", "a-b-c-1", "here", "two-three"].map(str::to_owned).into());
    assert_eq!(page.links.iter().map(|(_, target)| target.as_str()).collect::<Vec<_>>(), ["y.md#z", "p.png", "t.md"]);

    let files: BTreeSet<_> = ["README.md", "deploy/guide/src/a.md", "deploy/guide/src/b/c.md", "LICENSE"].map(str::to_owned).into();
    let pages = files.iter().filter(|f| f.ends_with(".md")).map(|f| (f.clone(), Page::parse(text))).collect();
    let problem = |from: &str, target: &str| broken(from, target, &pages, &files);
    for (from, target) in [
        ("README.md", "deploy/guide/src/a.md#two-three"),
        ("README.md", "deploy"),
        ("README.md", "https://example.org/nothing"),
        ("deploy/guide/src/a.md", "b/c.md"),
        ("deploy/guide/src/b/c.md", "../a.md#here"),
        ("deploy/guide/src/a.md", "#a-b-c-1"),
    ] {
        assert_eq!(problem(from, target), None, "{from}: {target}");
    }
    for (from, target) in [
        ("README.md", "missing.md"),
        ("README.md", "deploy/guide/src/a.md#four"),
        ("README.md", "../LICENSE"),
        ("README.md", "LICENSE#here"),
        ("deploy/guide/src/a.md", "../../../LICENSE"),
    ] {
        assert!(problem(from, target).is_some(), "{from}: {target}");
    }
}

/// Anyone who looks up an exit code finds it: the codes are read from where the programs choose them.
#[test]
fn every_exit_code_has_a_section() {
    let page = read("deploy/guide/src/troubleshooting.md");
    let sections: BTreeSet<u8> = page.lines().filter_map(|line| line.strip_prefix("## ")?.split([':', ' ']).next()?.parse().ok()).collect();
    let mut chosen = BTreeSet::from([0]);
    for path in ["client/src/error.rs", "server/src/error.rs"] {
        let text = read(path);
        let (_, body) = text.split_once("code(&self) -> u8 {").unwrap_or_else(|| panic!("{path} chooses the exit codes"));
        let (body, _) = body.split_once("\n    }\n").unwrap_or((body, ""));
        let codes: BTreeSet<u8> =
            body.lines().filter_map(|line| line.trim().rsplit_once("=> ")?.1.trim_end_matches(',').parse().ok()).collect();
        assert!(codes.len() > 5, "{path}: {codes:?}");
        let untold: Vec<_> = codes.difference(&sections).collect();
        assert!(untold.is_empty(), "troubleshooting.md has no section for the codes {untold:?} of {path}");
        chosen.extend(codes);
    }
    // Nor is one described that no program ends with. (Those above 128 are signals.)
    let unused: Vec<_> = sections.iter().filter(|code| **code < 128 && !chosen.contains(code)).collect();
    assert!(unused.is_empty(), "troubleshooting.md describes the codes {unused:?}, which no program chooses");
}

/// The table says of each program which codes it chooses.
#[test]
fn every_exit_code_stands_in_the_column_of_its_program() {
    let page = read("deploy/guide/src/troubleshooting.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| [")).map(|line| line.split('|').map(str::trim).collect()).collect();
    for (column, program, files) in [
        (3, "client", &["client/src/error.rs"][..]),
        (4, "server", &["server/src/error.rs", "common/results/src/account/mod.rs"]),
        (
            5,
            "sim",
            &[
                "common/simulation/src/main.rs",
                "common/simulation/src/experiment/mod.rs",
                "common/simulation/src/tune/mod.rs",
                "common/results/src/account/mod.rs",
            ],
        ),
    ] {
        let mut chosen = BTreeSet::from([0]);
        for path in files {
            let text = read(path);
            let (_, body) = text.split_once("code(&self) -> u8 {").unwrap_or_else(|| panic!("{path} chooses the exit codes"));
            let (body, _) = body.split_once("\n    }\n").unwrap_or((body, ""));
            chosen.extend(body.lines().filter_map(|line| line.trim().rsplit_once("=> ")?.1.trim_end_matches(',').parse::<u8>().ok()));
        }
        let told: BTreeSet<u8> = rows
            .iter()
            .filter(|row| row[column] == "✓")
            .filter_map(|row| row[1].trim_start_matches('[').split([']', ',']).next()?.parse().ok())
            .filter(|code| *code < 128)
            .collect();
        assert_eq!(told, chosen, "the column of {program} in troubleshooting.md");
    }
}

#[test]
fn the_readme_is_one_page() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines: what does not fit is a page of the guide");
}
