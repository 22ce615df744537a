//! What went wrong, in words for people, and the error behind it.

use std::error::Error;
use std::fmt;

/// Words, and the error that they are about where there is one: [`Error::source`] has it.
pub struct Problem {
    words: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Problem {
    /// An error in its own words.
    pub fn of(error: impl Error + Send + Sync + 'static) -> Self {
        Self { words: error.to_string(), source: Some(Box::new(error)) }
    }

    /// An error in other words.
    pub fn said(words: impl Into<String>, error: impl Error + Send + Sync + 'static) -> Self {
        Self { words: words.into(), source: Some(Box::new(error)) }
    }
}

impl From<Box<dyn Error + Send + Sync>> for Problem {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        Self { words: error.to_string(), source: Some(error) }
    }
}

impl From<String> for Problem {
    fn from(words: String) -> Self {
        Self { words, source: None }
    }
}

impl From<&str> for Problem {
    fn from(words: &str) -> Self {
        words.to_owned().into()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            None => write!(f, "{:?}", self.words),
            Some(source) => write!(f, "{:?} ({source:?})", self.words),
        }
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_behind_the_words_is_kept() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let problem = Problem::said("no key at k.pem", missing());
        assert_eq!(problem.to_string(), "no key at k.pem");
        assert_eq!(problem.source().map(ToString::to_string), Some(missing().to_string()));
        assert_eq!(Problem::of(missing()).to_string(), missing().to_string());
        let words: Problem = "nothing behind it".into();
        assert!(words.source().is_none() && format!("{words:?}") == "\"nothing behind it\"");
    }
}
