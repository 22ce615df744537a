//! How much the cluster may answer: what is too much is refused before the first visit where the task says so, and while it is read otherwise.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ExitStatus};

use dp_pvi_privacy::partial_sums::USUAL_PARTS;
use serde::Deserialize;

/// Most bytes of all answers together; as many as one message of the cluster holds.
const LARGEST: u64 = 1 << 30;

/// What an answer has beside its integers: keys, authentication, and which units it holds.
const BESIDE: u64 = 4096;

/// Of the engine's own file, what this program has to know.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    sum: Sum,
}

#[derive(Deserialize)]
#[serde(default)]
struct Sum {
    parts: u64,
}

impl Default for Sum {
    fn default() -> Self {
        Self { parts: USUAL_PARTS.into() }
    }
}

/// Whether answers of so many bytes of integers fit into one message, for as many parts as the engine's file says.
///
/// # Errors
/// They do not, or the file cannot be read. In words.
pub(super) fn fits(config: &Path, integers: u64) -> Result<(), String> {
    let file = config.display();
    let text = fs::read_to_string(config).map_err(|e| format!("{file}: {e}"))?;
    let Head { sum: Sum { parts } } = toml::from_str(&text).map_err(|e| format!("{file}: {}", e.message()))?;
    let most = LARGEST / integers.saturating_add(BESIDE);
    if parts <= most {
        return Ok(());
    }
    let what = if most == 0 {
        "and even one part is: take [engine] out of the configuration".to_owned()
    } else {
        format!("give it {most} at most")
    };
    Err(format!("{file}: with parts = {parts} the answers to one visit of the task are more than {} MiB, {what}", LARGEST >> 20))
}

/// How a program ended and what it wrote, which may not be more than answers can be.
///
/// # Errors
/// The system's; it wrote more, and was ended.
pub(super) fn output(mut child: Child) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut stdout = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |from| capped(from, LARGEST, &mut stdout));
    if read.is_err() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    read?;
    Ok((status, stdout))
}

fn capped(from: impl Read, most: u64, into: &mut Vec<u8>) -> io::Result<usize> {
    let read = from.take(most + 1).read_to_end(into)?;
    if read as u64 > most { Err(io::Error::other("it wrote more than all answers can be")) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn answers_that_are_too_long_for_a_message_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("head.toml");
        let said = |text: &str, integers: u64| {
            fs::write(&file, text).unwrap();
            fits(&file, integers).err()
        };
        assert_eq!(said("[sum]\nparts = 64\n[tls]\nca = \"ca.pem\"\n", 1000), None);
        assert_eq!(said("", 60 << 20), None, "16 parts");
        let refused = said("[sum]\nparts = 64\n", 100 << 20).unwrap();
        assert!(refused.contains("give it 10 at most"), "{refused}");
        assert_eq!(said("[sum]\nparts = 10\n", 100 << 20), None);
        assert!(said("", 2 << 30).unwrap().contains("[engine]"));
        assert!(said("parts", 8).is_some() && fits(&folder.path().join("none"), 8).is_err());
    }

    #[test]
    fn a_program_that_writes_without_end_is_ended() {
        let start = |line: &str| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let (status, written) = output(start("printf abc; exit 3")).unwrap();
        assert_eq!((written.as_slice(), status.code()), (&b"abc"[..], Some(3)));
        let mut read = Vec::new();
        let mut child = start("exec yes");
        assert!(capped(child.stdout.take().unwrap(), 1000, &mut read).is_err());
        assert_eq!(read.len(), 1001);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(capped(&b"abc"[..], 3, &mut read).unwrap(), 3);
    }
}
