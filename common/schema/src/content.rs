//! Data that is no table: documents as word counts, and images of black and white pixels. Neither has a label.
//!
//! ```toml
//! kind = "bag-of-words"
//!
//! [bag_of_words]
//! format = "docword"                # lines D, W, NNZ, then `document word count`; or "text": one document a line
//! words = 6906                      # W: words are numbers from 1 (docword); or, for both formats,
//! # vocabulary = ["bush", "kerry"]  # the public list of words; other words are not counted
//! document_length = 500             # N: counts of a document are scaled so that they sum to N
//! ```
//!
//! ```toml
//! kind = "binary-image"
//!
//! [binary_image]
//! width = 28
//! height = 28
//! threshold = 127                   # pixels above this are on
//! ```
//!
//! The vocabulary is public: a list of words that was read off the private documents would tell who wrote what.

use serde::Deserialize;

use super::{Blanks, CsvFormat, Encoding, Label, OtherColumns, Schema, SchemaError, first_repeated};

/// What a site's files hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Rows of columns, text or Parquet.
    Table,
    /// Documents; a record's entries are counts of words.
    Documents(DocumentRule),
    /// Images in IDX files; a record's entries are the pixels that are on.
    Images(ImageRule),
}

/// What a document is.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentRule {
    /// How a file holds documents.
    pub format: DocumentFormat,
    /// V, number of words.
    pub words: u32,
    /// The words in order, where the schema lists them.
    pub vocabulary: Option<Vec<String>>,
    /// N: what the counts of a document sum to.
    pub length: f64,
}

/// How a file holds documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DocumentFormat {
    /// Lines D, W, NNZ, then `document word count` with numbers from 1, ordered by document.
    Docword,
    /// One document a line. A word is a run of letters and digits; capitals count as small letters.
    Text,
}

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageRule {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Pixels above this are on.
    pub threshold: u8,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Raw {
    BagOfWords { bag_of_words: RawWords },
    BinaryImage { binary_image: RawImage },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWords {
    format: DocumentFormat,
    words: Option<u32>,
    vocabulary: Option<Vec<String>>,
    document_length: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawImage {
    width: u32,
    height: u32,
    threshold: u8,
}

/// The schema of a text with a `kind`; `None` for an ordinary table (no `kind`, or only `kind = "table"`).
pub(super) fn parse(text: &str) -> Result<Option<Schema>, SchemaError> {
    // What cannot be read as TOML at all is reported by the parser of tables, with line and column.
    let Ok(table) = text.parse::<toml::Table>() else { return Ok(None) };
    if !table.contains_key("kind") {
        return Ok(None);
    }
    let raw = Raw::deserialize(toml::Value::Table(table)).map_err(|e| SchemaError::Unreadable(e.to_string().trim_end().to_owned()))?;
    match raw {
        Raw::BagOfWords { bag_of_words } => documents(bag_of_words).map(Some),
        Raw::BinaryImage { binary_image } => images(&binary_image).map(Some),
    }
}

fn documents(raw: RawWords) -> Result<Schema, SchemaError> {
    let fail = |problem: &str| Err(SchemaError::Whole(problem.to_owned()));
    let words = match (&raw.vocabulary, raw.words) {
        (None, Some(words)) if raw.format == DocumentFormat::Docword => words,
        (None, Some(_)) => return fail("`format = \"text\"` needs `vocabulary`: list the public words that are counted"),
        (Some(list), words) => match u32::try_from(list.len()) {
            Ok(length) if words.is_none_or(|words| words == length) => length,
            _ => return fail("`vocabulary` does not have as many words as `words` says: leave `words` out"),
        },
        (None, None) => return fail("`[bag_of_words]` needs `words` (their number) or `vocabulary` (their list)"),
    };
    if words == 0 {
        return fail("`[bag_of_words]` has no words: nothing could be learned");
    }
    if let Some(list) = &raw.vocabulary {
        if let Some(word) = first_repeated(list.iter().map(String::as_str)) {
            return Err(SchemaError::Whole(format!("the word `{word}` is listed twice in `vocabulary`: list it once")));
        }
        if raw.format == DocumentFormat::Text
            && let Some(word) = list.iter().find(|word| !is_one_word(word))
        {
            return Err(SchemaError::Whole(format!(
                "`{word}` of `vocabulary` never occurs: with format = \"text\" a word is small letters and digits only"
            )));
        }
    }
    if !(raw.document_length.is_finite() && raw.document_length > 0.0) {
        return fail("`document_length` must be a finite number above 0");
    }
    let length = raw.document_length;
    let rule = DocumentRule { format: raw.format, words, vocabulary: raw.vocabulary, length };
    Ok(without_columns(Content::Documents(rule), words, length))
}

/// Whether a text is what a document in text form can contain as one word.
fn is_one_word(word: &str) -> bool {
    !word.is_empty() && word.chars().all(char::is_alphanumeric) && word.to_lowercase() == *word
}

fn images(raw: &RawImage) -> Result<Schema, SchemaError> {
    let pixels = raw.width.checked_mul(raw.height).filter(|pixels| *pixels > 0);
    let Some(pixels) = pixels else {
        return Err(SchemaError::Whole("`width` and `height` must be at least 1, and their product below 2^32".into()));
    };
    if raw.threshold == u8::MAX {
        return Err(SchemaError::Whole("no pixel is above a `threshold` of 255: use a smaller one".into()));
    }
    let rule = ImageRule { width: raw.width, height: raw.height, threshold: raw.threshold };
    Ok(without_columns(Content::Images(rule), pixels, f64::from(pixels).sqrt()))
}

fn without_columns(content: Content, dimension: u32, norm_bound: f64) -> Schema {
    Schema {
        content,
        columns: Vec::new(),
        label: Label::absent(),
        outcome: Vec::new(),
        unit_column: None,
        missing_tokens: Vec::new(),
        other_columns: OtherColumns::Reject,
        intercept: None,
        csv: CsvFormat { delimiter: b',', names: None, blanks: Blanks::Trimmed, comment: None, decimal: b'.', encoding: Encoding::Utf8 },
        dimension,
        max_nonzeros: dimension,
        worst_case_norm: norm_bound,
        norm_bound,
        written_bound: None,
        design: None,
        fills: Vec::new(),
    }
}

/// Names of the features: words, or places of pixels.
pub(super) fn names(content: &Content) -> Vec<String> {
    match content {
        Content::Table => Vec::new(),
        Content::Documents(DocumentRule { vocabulary: Some(list), .. }) => list.clone(),
        Content::Documents(rule) => (1..=rule.words).map(|word| format!("word {word}")).collect(),
        Content::Images(rule) => {
            (1..=rule.height).flat_map(|row| (1..=rule.width).map(move |column| format!("pixel {row},{column}"))).collect()
        }
    }
}

/// Largest entry of a record.
pub(super) fn max_abs_entry(content: &Content) -> f64 {
    match content {
        Content::Table => 0.0,
        Content::Documents(rule) => rule.length,
        Content::Images(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Content, DocumentFormat};
    use crate::{LabelKind, Schema};

    const DOCWORD: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 6906\ndocument_length = 500\n";
    const IMAGE: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 28\nheight = 28\nthreshold = 127\n";

    #[test]
    fn documents_and_images_have_public_sizes_and_bounds() {
        let schema = Schema::parse(DOCWORD).unwrap();
        let Content::Documents(rule) = schema.content() else { panic!("documents") };
        assert_eq!((rule.format, rule.words, &rule.vocabulary), (DocumentFormat::Docword, 6906, &None));
        assert_eq!((schema.dimension(), schema.max_nonzeros(), schema.intercept()), (6906, 6906, None));
        assert!((schema.row_norm_bound() - 500.0).abs() < 1e-12 && (schema.max_abs_entry() - 500.0).abs() < 1e-12);
        assert_eq!(schema.label().kind, LabelKind::Absent);
        assert_eq!(schema.coefficient_names()[2], "word 3");

        let schema = Schema::parse(IMAGE).unwrap();
        assert_eq!((schema.dimension(), schema.columns().len()), (784, 0));
        assert!((schema.row_norm_bound() - 28.0).abs() < 1e-12 && (schema.max_abs_entry() - 1.0).abs() < 1e-12);
        assert_eq!(schema.coefficient_names()[28], "pixel 2,1");
    }

    #[test]
    fn a_listed_vocabulary_gives_names() {
        let text = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"text\"\nvocabulary = [\"bush\", \"kerry\"]\ndocument_length = 9\n";
        let schema = Schema::parse(text).unwrap();
        assert_eq!(schema.coefficient_names(), ["bush", "kerry"]);
        for (from, to, part) in [
            ("\"kerry\"", "\"bush\"", "listed twice"),
            ("\"kerry\"", "\"Kerry\"", "never occurs"),
            ("\"kerry\"", "\"john kerry\"", "never occurs"),
            ("document_length = 9", "document_length = 9\nwords = 3", "does not have as many words"),
            ("document_length = 9", "document_length = 0", "document_length"),
            ("document_length = 9", "document_length = 9\nlength = 9", "length"),
            ("vocabulary = [\"bush\", \"kerry\"]", "words = 2", "needs `vocabulary`"),
        ] {
            assert!(text.contains(from));
            let error = Schema::parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (from, to, part) in [
            ("words = 6906\n", "", "needs `words`"),
            ("6906", "0", "no words"),
            ("docword", "csv", "csv"),
            ("bag-of-words", "bag", "bag"),
            ("document_length", "docs_length", "docs_length"),
        ] {
            let error = Schema::parse(&DOCWORD.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for (from, to, part) in
            [("28\nh", "0\nh", "at least 1"), ("127", "255", "threshold"), ("127", "300", "300"), ("28\nt", "4294967295\nt", "2^32")]
        {
            assert!(IMAGE.contains(from));
            let error = Schema::parse(&IMAGE.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
