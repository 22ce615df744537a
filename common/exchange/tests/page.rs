//! The page in a browser: what it computes in headless Chromium is what the accountant computes here.
//!
//! It needs `chromium` (or `DP_PVI_CHROMIUM`) and Rust's target wasm32-wasip1; without one of them, the test says what it leaves out.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(300);

/// A question behind the page's `#`, and the same for the accountant.
const QUESTIONS: &[(&str, &str)] = &[
    (
        "ask=cost&sigma=1.1&sampling=poisson&share=0.02&steps=500&delta=1e-6&relation=add_remove",
        r#"{"relation": "add_remove", "sampling": {"poisson": 0.02}, "steps": 500, "delta": 1e-6, "sigma": 1.1}"#,
    ),
    (
        "ask=cost&sigma=0.9&sampling=random_allocation&batches=20&steps=2&delta=1e-5&relation=zero_out",
        r#"{"relation": "zero_out", "sampling": {"random_allocation": 20}, "steps": 2, "delta": 1e-5, "sigma": 0.9}"#,
    ),
    (
        "ask=noise&epsilon=1.5&sampling=none&steps=10&delta=1e-5&relation=replace_one",
        r#"{"relation": "replace_one", "sampling": "none", "steps": 10, "delta": 1e-5, "epsilon": 1.5}"#,
    ),
    (
        "ask=cost&sigma=1&sampling=without_replacement&share=0.1&steps=5&delta=1e-5&relation=zero_out",
        r#"{"relation": "zero_out", "sampling": {"without_replacement": 0.1}, "steps": 5, "delta": 1e-5, "sigma": 1}"#,
    ),
];

fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("DP_PVI_CHROMIUM").map(PathBuf::from);
    let found = named.into_iter().chain(["chromium", "chromium-browser", "google-chrome"].map(PathBuf::from)).find(|program| {
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    if found.is_none() {
        println!(
            "SKIPPED: there is no chromium (apt-get install chromium, or name one in DP_PVI_CHROMIUM): the calculator was NOT looked at"
        );
    }
    found
}

/// What the page has computed for what is behind its `#`. A script that is added to it posts the answer to a listener here.
fn computed(chromium: &Path, page: &str, question: &str) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let post = format!(
        "<script>new MutationObserver(() => {{ const {{ answer }} = document.getElementById('result').dataset; if (answer) \
         fetch('http://{address}', {{ method: 'POST', mode: 'no-cors', body: answer }}); }}).observe(document.getElementById('result'), \
         {{ attributes: true, attributeFilter: ['data-answer'] }});</script><script>"
    );
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("page.html");
    std::fs::write(&file, page.replacen("<script>", &post, 1)).unwrap();
    // Without a sandbox: a container has none to give, and the page is ours.
    let mut browser = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-extensions", "--disable-background-networking"])
        .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
        .arg(format!("file://{}#{question}", file.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || sender.send(posted(&listener)));
    let answer = answers.recv_timeout(PATIENCE);
    browser.kill().unwrap();
    browser.wait().unwrap();
    let answer = answer.unwrap_or_else(|_| panic!("{question} has no answer"));
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// The body of the first request that has one.
fn posted(listener: &TcpListener) -> String {
    for stream in listener.incoming() {
        let mut reader = BufReader::new(stream.unwrap());
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        if length > 0 {
            return String::from_utf8(body).unwrap();
        }
    }
    unreachable!("a listener listens")
}

/// Equal but for the last digits: another instruction set adds in another order, which the bounds allow for.
fn alike(here: &Value, there: &Value, place: &str) {
    match (here, there) {
        (Value::Object(a), Value::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{place}");
            a.iter().for_each(|(key, value)| alike(value, &b[key], &format!("{place} {key}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{place}");
            a.iter().zip(b).for_each(|(a, b)| alike(a, b, place));
        }
        _ => {
            let (a, b) = (here.as_f64().unwrap(), there.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-6 * a.abs().max(1e-9), "{place}: {a} here, {b} in the page");
        }
    }
}

#[test]
fn the_page_answers_as_the_accountant_does() {
    let Some(chromium) = chromium() else { return };
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calculator.html");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(root.join("deploy/calculator/build.sh")).arg(&page).output().unwrap();
    if built.status.code() == Some(77) {
        println!("{}: the calculator was NOT built", String::from_utf8_lossy(&built.stderr).trim());
        return;
    }
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let size = std::fs::metadata(&page).unwrap().len();
    assert!(size < 1_500_000, "a page of {size} bytes");
    let page = std::fs::read_to_string(&page).unwrap();
    for (asked, question) in QUESTIONS {
        match dp_pvi_exchange::calculator::answer(question) {
            Ok(answer) => alike(&serde_json::to_value(answer).unwrap(), &computed(&chromium, &page, asked), asked),
            Err(error) => assert_eq!(computed(&chromium, &page, asked)["error"], error.to_string(), "{asked}"),
        }
    }
}
