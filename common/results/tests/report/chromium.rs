//! Headless Chromium as a measuring tool.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What the person prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Light,
    Dark,
}

impl Look {
    /// Blink's own setting: 0 is dark, 1 is light.
    fn flag(self) -> &'static str {
        match self {
            Self::Light => "--blink-settings=preferredColorScheme=1",
            Self::Dark => "--blink-settings=preferredColorScheme=0",
        }
    }
}

/// A browser, and the folder of what it makes.
pub(crate) struct Browser {
    program: PathBuf,
    folder: PathBuf,
}

impl Browser {
    /// The installed one; without any, says so.
    pub(crate) fn find() -> Option<Self> {
        let named = std::env::var_os("DP_PVI_CHROMIUM").map(PathBuf::from);
        let usual = ["chromium", "chromium-browser", "google-chrome", "chrome"].map(PathBuf::from);
        let answers = |program: &PathBuf| {
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        let Some(program) = named.into_iter().chain(usual).find(answers) else {
            println!(
                "SKIPPED: there is no chromium (apt-get install chromium, or name one in DP_PVI_CHROMIUM): the report was NOT looked at"
            );
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
        std::fs::create_dir_all(&folder).unwrap();
        Some(Self { program, folder })
    }

    fn run(&self, look: Look, arguments: &[&str], page: &str) -> Output {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("page.html");
        std::fs::write(&file, page).unwrap();
        // Without a sandbox: a container has none to give, and the page is ours and has no scripts but the ruler's.
        let output = Command::new(&self.program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"])
            .args(["--disable-extensions", "--disable-background-networking", "--virtual-time-budget=10000", look.flag()])
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .args(arguments)
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// What the ruler finds in frames of these widths, in pixels.
    pub(crate) fn measure(&self, page: &str, widths: &[u32], look: Look) -> Vec<String> {
        let output = self.run(look, &["--window-size=1400,1000", "--dump-dom"], &around(page, widths, 1000));
        let dom = String::from_utf8(output.stdout).unwrap();
        let (_, found) = dom.split_once("<pre id=\"found\">").unwrap_or_else(|| panic!("the ruler's page: {dom}"));
        let found = found.split("</pre>").next().unwrap().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let frames: Vec<String> = found.split("done=1\n").map(str::to_owned).collect();
        assert!(frames.len() == widths.len() + 1, "the ruler did not come to its end: {found}");
        frames[..widths.len()].to_vec()
    }

    /// A picture of the whole page, in the target folder.
    pub(crate) fn picture(&self, name: &str, page: &str, (width, height): (u32, u32), look: Look) {
        let file = self.folder.join(format!("{name}.png"));
        // A window is never as narrow as a phone; a frame is.
        let size = format!("--window-size={},{height}", width.max(500));
        self.run(look, &[&size, &format!("--screenshot={}", file.display())], &around(page, &[width], height));
        assert!(std::fs::metadata(&file).unwrap().len() > 10_000, "{}", file.display());
    }

    /// The text of the printed pages, where there is a program that reads it; the pages stay in the target folder.
    pub(crate) fn printed(&self, name: &str, page: &str) -> Option<String> {
        let file = self.folder.join(format!("{name}.pdf"));
        self.run(Look::Light, &["--no-pdf-header-footer", &format!("--print-to-pdf={}", file.display())], page);
        assert!(std::fs::read(&file).unwrap().starts_with(b"%PDF"));
        let Ok(output) = Command::new("pdftotext").args(["-raw".as_ref(), file.as_os_str(), "-".as_ref()]).output() else {
            println!("SKIPPED: there is no pdftotext (apt-get install poppler-utils): the text of the printed pages was not read");
            return None;
        };
        assert!(output.status.success());
        // Where a line breaks is the paper's business.
        Some(String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// The page with the rules of paper in force, and those of screens not.
pub(crate) fn as_on_paper(page: &str) -> String {
    assert!(page.contains("@media print{") && page.contains("@media screen and"));
    page.replace("@media print{", "@media all{").replace("@media screen and", "@media speech and")
}

/// A page with a ruler and the page in frames of these widths.
fn around(page: &str, widths: &[u32], height: u32) -> String {
    let quoted = page.replace('&', "&amp;").replace('"', "&quot;");
    let mut html = String::from(
        "<!doctype html><html><head><style>body{margin:0}iframe{border:0;display:block}pre{display:none}</style></head><body>",
    );
    for width in widths {
        let _ = write!(html, "<iframe width=\"{width}\" height=\"{height}\" srcdoc=\"{quoted}\"></iframe>");
    }
    let _ = write!(html, "<pre id=\"found\"></pre><script>{}</script></body></html>", include_str!("ruler.js"));
    html
}
