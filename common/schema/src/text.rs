//! Texts, read by one rule wherever they come from: cells, names of columns, ids, and what the schema itself lists.
//!
//! *A text* ([`cell`]) has no blanks around it and its letters in Unicode's composed form (NFC), so that `ä` is one letter whether a program wrote it as one or as an `a` with two
//! points. Blanks are all of Unicode's, the no-break blank among them, and characters that are shown as nothing: marks without a width (U+FEFF, U+200B), of direction (U+200E), soft hyphens. Blanks inside and capital letters stay.
//!
//! *A level, a class or a truth value* is compared in its [`plain`] form where it is a number without an exponent: `3.0` is `3` and `0.50` is `0.5`, as which the same numbers are stored in Parquet.
//!
//! *An id* ([`id`]) is such a text, and a number that a program spelled as a floating-point number is its digits: `12.0`, `+12`, `1.2e1` and `1.2E+01` are `12`, `12.50` is `12.5`,
//! and `-0` is `0`. Digits alone stay as they are, so `012` is another id than `12`, and so is `1e1`, which may be part of a code. Ids that differ so little that a person would ask are [`near`] each other.

use std::borrow::Cow;

use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::Blanks;

/// From here on a floating-point number does not know every whole number.
pub const EXACT: u64 = 1 << 53;

/// Digits behind the point of an id, more than the text of any floating-point number has.
const LONGEST_FRACTION: i64 = 400;

/// Why a cell names no one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoId {
    /// Nothing, or "not a number".
    Missing,
    /// A floating-point number that may stand for several whole ones.
    Inexact,
}

/// Whether a character around a text is no part of it: blanks, and what Unicode shows as nothing (Default_Ignorable_Code_Point, with the marks of direction).
fn is_blank(character: char) -> bool {
    character.is_whitespace()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Zeros of scripts whose digits have no ASCII form in NFKC; nine digits follow each of them.
const ZEROS: [u32; 67] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0, 0xf20, 0x1040, 0x1090, 0x17e0,
    0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0,
    0x104a0, 0x10d30, 0x10d40, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x116d0, 0x116da, 0x11730,
    0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50, 0x11da0, 0x11f50, 0x16130, 0x16a60, 0x16ac0, 0x16b50, 0x16d70, 0x1e140, 0x1e2f0, 0x1e4f0,
    0x1e5f1, 0x1e950,
];

/// A decimal digit as the ASCII one.
fn ascii_digit(character: char) -> char {
    let code = u32::from(character);
    let before = ZEROS.partition_point(|zero| *zero <= code).checked_sub(1).map(|at| code - ZEROS[at]);
    before.filter(|digit| *digit < 10).and_then(|digit| char::from_digit(digit, 10)).unwrap_or(character)
}

/// Whether a text can be printed in one line as it is: no control character, nothing that turns the direction of writing, no line separator.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    !text.chars().any(|c| c.is_control() || turns(c))
}

/// The composed form (NFC).
#[must_use]
pub fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) { Cow::Borrowed(text) } else { Cow::Owned(text.nfc().collect()) }
}

/// A name, or the text of a cell: without blanks around it, composed.
#[must_use]
pub fn read(text: &str) -> Cow<'_, str> {
    composed(text.trim_matches(is_blank))
}

/// The text of a cell, of which a schema may say that blanks are part of it. Bytes that are no UTF-8 stay as they are.
#[must_use]
pub fn cell(bytes: &[u8], blanks: Blanks) -> Cow<'_, [u8]> {
    if bytes.is_ascii() {
        return Cow::Borrowed(match blanks {
            // Vertical tabs are blanks in Unicode and not in ASCII.
            Blanks::Trimmed if bytes.contains(&0x0b) => return of_text(bytes, read),
            Blanks::Trimmed => bytes.trim_ascii(),
            Blanks::Kept => bytes,
        });
    }
    of_text(bytes, if blanks == Blanks::Trimmed { read } else { composed })
}

fn of_text(bytes: &[u8], read: fn(&str) -> Cow<'_, str>) -> Cow<'_, [u8]> {
    match std::str::from_utf8(bytes).map(read) {
        Ok(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Ok(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        Err(_) => Cow::Borrowed(bytes),
    }
}

/// Whether a cell's text is one that a schema lists: the same text or [`plain`] number; of truth values, which programs write as `true`, `True` and `TRUE`, without regard to
/// capital letters. `decimal` is the decimal sign of the cell; numbers of the list have a point.
#[must_use]
pub fn is_listed(listed: &[u8], text: &[u8], decimal: u8) -> bool {
    listed == text || plain(listed, b'.') == plain(text, decimal) || is_truth(text) && listed.eq_ignore_ascii_case(text)
}

/// The same without regard to capital letters, those beyond ASCII included (`É` is `é`, `ß` is `SS`).
#[must_use]
pub fn is_listed_in_any_case(listed: &[u8], text: &[u8], decimal: u8) -> bool {
    if listed.eq_ignore_ascii_case(text) {
        return true;
    }
    let (one, other) = (plain(listed, b'.'), plain(text, decimal));
    let (one, other) = (one.as_ref(), other.as_ref());
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    match (std::str::from_utf8(one), std::str::from_utf8(other)) {
        (Ok(one), Ok(other)) if !one.is_ascii() || !other.is_ascii() => one.to_uppercase() == other.to_uppercase(),
        _ => false,
    }
}

/// Whether a text is a truth value as programs write it.
#[must_use]
pub(crate) fn is_truth(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"true") || text.eq_ignore_ascii_case(b"false")
}

/// A number of digits in one form: a point before its decimals, no zeros at their end, and no sign before 0. `decimal` is the decimal sign of the text. Any other text, with an exponent
/// or a plus sign for example, is as it was; zeros before other digits stay, as in codes.
#[must_use]
pub fn plain(text: &[u8], decimal: u8) -> Cow<'_, [u8]> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let whole = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, rest) = unsigned.split_at(whole);
    let fraction = match rest {
        _ if before.is_empty() => return Cow::Borrowed(text),
        [] => rest,
        [sign, fraction @ ..] if *sign == decimal && fraction.iter().all(u8::is_ascii_digit) => fraction,
        _ => return Cow::Borrowed(text),
    };
    let zeros = fraction.iter().rev().take_while(|byte| **byte == b'0').count();
    let fraction = &fraction[..fraction.len() - zeros];
    if fraction.is_empty() {
        // PostgreSQL writes the negative zero of floating-point numbers so. There is no other zero with a sign.
        return Cow::Borrowed(if before == b"0" { before } else { &text[..text.len() - rest.len()] });
    }
    let end = text.len() - zeros;
    if decimal == b'.' {
        return Cow::Borrowed(&text[..end]);
    }
    Cow::Owned([&text[..text.len() - rest.len()], b".", fraction].concat())
}

/// The id that a text is; `decimal` is the decimal sign of its source. See the [module](self).
///
/// # Errors
/// It names no one.
pub fn id(text: &str, decimal: u8) -> Result<Cow<'_, str>, NoId> {
    let text = read(text);
    if text.is_empty() || text.eq_ignore_ascii_case("nan") {
        return Err(NoId::Missing);
    }
    if ["inf", "infinity"].iter().any(|word| text.trim_start_matches(['+', '-']).eq_ignore_ascii_case(word)) {
        return Err(NoId::Inexact);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text);
    }
    let Some(number) = Spelled::of(&text, decimal) else { return Ok(text) };
    if !number.by_program {
        // A sign at most. C and PostgreSQL write the negative zero of floating-point numbers so.
        return Ok(match text.strip_prefix('+') {
            Some(digits) if number.exponent.is_none() => Cow::Owned(digits.to_owned()),
            None if text == "-0" => Cow::Borrowed("0"),
            _ => text,
        });
    }
    match number.digits() {
        Digits::Fraction(None) => Ok(text),
        // Perhaps a separator of thousands: near the whole number, and not one with fewer zeros.
        Digits::Fraction(Some(_)) if without_groups(text.trim_start_matches(['+', '-'])).is_some() => Ok(text),
        Digits::Fraction(Some(digits)) => Ok(Cow::Owned(if number.negative { format!("-{digits}") } else { digits })),
        Digits::Whole(digits) if digits.parse().is_ok_and(|value: u64| value < EXACT) => {
            Ok(Cow::Owned(if number.negative && digits != "0" { format!("-{digits}") } else { digits }))
        }
        Digits::Whole(_) | Digits::Long => Err(NoId::Inexact),
    }
}

/// The id that a stored floating-point number is.
///
/// # Errors
/// It names no one.
pub fn id_of(number: f64) -> Result<String, NoId> {
    #[allow(clippy::cast_precision_loss, reason = "2^53 is exact")]
    match number {
        number if number.is_nan() => Err(NoId::Missing),
        number if number.abs() < EXACT as f64 => Ok((number + 0.0).to_string()),
        _ => Err(NoId::Inexact),
    }
}

/// What an id has in common with those that a person could take for the same: without regard to capital letters (`ß` is `ss`), blanks, punctuation and signs, leading zeros, Unicode's
/// forms, the script of digits and how a number is spelled.
#[must_use]
pub fn near(id: &str) -> String {
    // There and back: ẞ and ß become ss, and letters with two small forms get one. The dot of a Turkish İ is left over.
    let small = id.nfkc().flat_map(char::to_lowercase).flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    let folded: String = small.filter(|character| !is_blank(*character) && *character != '\u{307}').map(ascii_digit).collect();
    if let Some(digits) = without_groups(&folded) {
        return near(&digits);
    }
    let folded = match folded.trim_start_matches(['+', '-']) {
        unsigned if unsigned.starts_with(['.', ',']) => format!("0{unsigned}"),
        unsigned => unsigned.to_owned(),
    };
    let comma = !folded.contains('.');
    if let Some(number) = Spelled::of(&folded, if comma { b',' } else { b'.' }) {
        // Thousands that lost their zeros: 12.5 beside 12.500.
        if let Digits::Fraction(Some(digits)) = number.digits()
            && let Some((before, after)) = digits.split_once('.')
            && [before, after].iter().all(|part| (1..=3).contains(&part.len()))
        {
            return near(&format!("{before}{after:0<3}"));
        }
        return number.value();
    }
    let folded: String = folded.chars().filter(|character| character.is_alphanumeric()).collect();
    if let Some(number) = Spelled::of(&folded, b'.') {
        return number.value();
    }
    let mut near = String::with_capacity(folded.len());
    let mut rest = folded.as_str();
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, digits) = rest.split_at(start);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after) = digits.split_at(length);
        near.push_str(before);
        let is_leading = near.is_empty() && !after.is_empty();
        near.push_str(Some(digits.trim_start_matches('0')).filter(|digits| !digits.is_empty() || is_leading).unwrap_or("0"));
        rest = after;
    }
    near.push_str(rest);
    near
}

/// The digits of a number with separators of thousands.
fn without_groups(text: &str) -> Option<String> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let separator = text.chars().find(|character| !character.is_ascii_digit()).filter(|separator| ",.'\u{2019}_".contains(*separator))?;
    let (first, groups) = text.split_once(separator)?;
    let fits = (1..=3).contains(&first.len()) && groups.split(separator).all(|group| group.len() == 3 && is_digits(group));
    fits.then(|| text.replace(separator, ""))
}

/// A text of the form `[+-]digits[.digits][e[+-]digits]`.
struct Spelled<'t> {
    negative: bool,
    before: &'t str,
    after: &'t str,
    exponent: Option<i64>,
    /// It has decimals, or an exponent with a sign: people do not write ids so, and programs write numbers so. Codes such as `1E31` have neither.
    by_program: bool,
}

enum Digits {
    Whole(String),
    /// With a point; `None` beyond [`LONGEST_FRACTION`].
    Fraction(Option<String>),
    /// More digits than any floating-point number keeps.
    Long,
}

impl<'t> Spelled<'t> {
    fn of(text: &'t str, decimal: u8) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
            None => (unsigned, None),
        };
        let (before, after) = mantissa.split_once(char::from(decimal)).unwrap_or((mantissa, ""));
        let has_decimals = before.len() < mantissa.len();
        let signed = exponent.is_some_and(|exponent| exponent.starts_with(['+', '-']));
        let exponent = match exponent {
            None => None,
            Some(exponent) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                // Eighteen digits of an exponent are as good as any more of them.
                if digits.is_empty() || digits.len() > 18 || !is_digits(digits) {
                    return None;
                }
                let size: i64 = digits.parse().ok()?;
                Some(if exponent.starts_with('-') { -size } else { size })
            }
        };
        let is_number = !before.is_empty() && is_digits(before) && is_digits(after);
        is_number.then_some(Self { negative, before, after, exponent, by_program: has_decimals || signed })
    }

    /// Digits without zeros at both ends, and the power of ten that they are multiplied by.
    fn parts(&self) -> (String, i64) {
        let all = format!("{}{}", self.before, self.after);
        let digits = all.trim_end_matches('0');
        let moved = i64::try_from(all.len() - digits.len()).unwrap_or(i64::MAX);
        let power = self.exponent.unwrap_or(0).saturating_add(moved).saturating_sub(i64::try_from(self.after.len()).unwrap_or(i64::MAX));
        (digits.trim_start_matches('0').to_owned(), power)
    }

    fn digits(&self) -> Digits {
        let (mut digits, power) = self.parts();
        if digits.is_empty() {
            return Digits::Whole("0".into());
        }
        match usize::try_from(power) {
            Err(_) if power < -LONGEST_FRACTION => Digits::Fraction(None),
            Err(_) => {
                // Never more than that many zeros.
                let behind = usize::try_from(power.unsigned_abs()).unwrap_or(usize::MAX);
                let zeros = "0".repeat((behind + 1).saturating_sub(digits.len()));
                let all = format!("{zeros}{digits}");
                let (before, after) = all.split_at(all.len() - behind);
                Digits::Fraction(Some(format!("{before}.{after}")))
            }
            Ok(power) if power > 20 => Digits::Long,
            Ok(power) => {
                digits.extend(std::iter::repeat_n('0', power));
                Digits::Whole(digits)
            }
        }
    }

    /// The same text for the same number.
    fn value(&self) -> String {
        let (digits, power) = self.parts();
        if digits.is_empty() {
            return "0".into();
        }
        format!("{}{digits}e{power}", if self.negative { "-" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_text_has_no_blanks_around_it_and_composed_letters() {
        for text in ["Ärzte", "A\u{308}rzte", " \tÄrzte\r", "\u{a0}A\u{308}rzte\u{3000}", "\u{feff}Ärzte\u{200b}", "\u{b}Ärzte"] {
            assert_eq!(read(text), "Ärzte", "{text:?}");
            assert_eq!(cell(text.as_bytes(), Blanks::Trimmed).as_ref(), "Ärzte".as_bytes(), "{text:?}");
        }
        assert_eq!(read("a  b"), "a  b");
        assert_eq!(cell(b"\x0b a\x0b", Blanks::Trimmed).as_ref(), b"a");
        assert_eq!(cell(" A\u{308} ".as_bytes(), Blanks::Kept).as_ref(), " Ä ".as_bytes());
        // No text: as it is, so that anyone who reads it can say so.
        assert_eq!(cell(b" \xff ", Blanks::Trimmed).as_ref(), b" \xff ");
    }

    #[test]
    fn capital_letters_are_folded_beyond_ascii_too() {
        for (one, other, same) in [
            ("yes", "YES", true),
            ("décédé", "DÉCÉDÉ", true),
            ("да", "Да", true),
            ("ναι", "ΝΑΙ", true),
            ("straße", "STRASSE", true),
            ("1", "1.0", true),
            ("é", "e", false),
            ("yes", "yess", false),
        ] {
            assert_eq!(is_listed_in_any_case(one.as_bytes(), other.as_bytes(), b'.'), same, "{one} {other}");
        }
        assert!(!is_listed_in_any_case(b"\xff", "é".as_bytes(), b'.'));
    }

    /// What was read once is not changed by reading it again, whatever it is made of.
    #[test]
    fn reading_twice_is_reading_once() {
        let parts =
            ["a", "\u{308}", " ", "\u{2000}", "\u{2001}", "ß", "\u{1e9b}", "\u{323}", "\u{feff}", "\u{340}", "가", "\u{1100}", "\u{1161}"];
        for first in parts {
            for second in parts {
                for third in parts {
                    let once = read(&format!("{first}{second}{third}")).into_owned();
                    assert_eq!(read(&once), once, "{once:?}");
                }
            }
        }
    }

    #[test]
    fn a_number_has_one_form_whatever_zeros_are_at_its_end() {
        for (text, digits) in [
            ("3.0", "3"),
            ("3.000", "3"),
            ("-3.0", "-3"),
            ("-0.0", "0"),
            ("-0", "0"),
            ("0.0", "0"),
            ("10", "10"),
            ("-10", "-10"),
            ("007.0", "007"),
            ("3.10", "3.1"),
            ("-0.50", "-0.5"),
            ("3.", "3"),
            ("1e3", "1e3"),
            ("+3.0", "+3.0"),
            ("3,50", "3,50"),
            (".0", ".0"),
            ("-.0", "-.0"),
            ("x.0", "x.0"),
            ("1.0.0", "1.0.0"),
            ("", ""),
            ("0", "0"),
            ("v2.0", "v2.0"),
        ] {
            assert_eq!(plain(text.as_bytes(), b'.'), digits.as_bytes(), "{text}");
        }
        for (text, digits) in [("3,0", "3"), ("3,10", "3.1"), ("3.10", "3.10"), ("1.250,5", "1.250,5"), ("-0,0", "0"), ("-0,5", "-0.5")] {
            assert_eq!(plain(text.as_bytes(), b','), digits.as_bytes(), "{text}");
        }
    }

    #[test]
    fn an_id_has_one_form() {
        for text in [
            "12",
            " 12",
            "12\u{a0}",
            "12.0",
            "12.",
            "12.000",
            "+12",
            "1.2e1",
            "1.2E+01",
            "1200e-2",
            "0012.0",
            "\u{feff}12",
            "\u{2007}12\u{202f}",
            "12\u{200e}",
            "12\u{200f}",
            "12\u{ad}",
            "12\u{fe0f}",
            "\u{2066}12\u{2069}",
            "\u{202b}12\u{202c}\u{34f}",
            "\u{3164}12\u{e0041}",
        ] {
            assert_eq!(id(text, b'.').unwrap(), "12", "{text:?}");
        }
        for text in ["12.5", "12.50", "012.5", "1.25e1", "1250e-2"] {
            assert_eq!(id(text, b'.').unwrap(), "12.5", "{text}");
        }
        assert_eq!((id("12,0", b',').unwrap(), id("12,50", b',').unwrap()), ("12".into(), "12.5".into()));
        assert_eq!((id("-1e-07", b'.').unwrap(), id_of(-1e-7).unwrap()), ("-0.0000001".into(), "-0.0000001".to_owned()));
        assert_eq!(id("M\u{fc}ller", b'.'), id("Mu\u{308}ller", b'.'));
        for (number, text) in [(12.0, "12"), (-0.0, "0"), (2.5, "2.5"), (9_007_199_254_740_991.0, "9007199254740991")] {
            assert_eq!(id_of(number).unwrap(), text);
            assert_eq!(id(&format!("{number:?}"), b'.').unwrap(), text);
            assert_eq!(id(&number.to_string(), b'.').unwrap(), text);
        }
        assert_eq!(
            (id("-12.0", b'.').unwrap(), id("-0.0", b'.').unwrap(), id("1e+05", b'.').unwrap()),
            ("-12".into(), "0".into(), "100000".into())
        );
    }

    #[test]
    fn what_may_be_two_persons_is_two_ids() {
        for text in [
            "012",
            "12,0",
            "A12",
            "a12",
            "1e1",
            "1E31",
            "12345e67",
            "12.5",
            "12.500",
            "-12.500",
            "1e-500",
            "1 2",
            "1.2.0",
            "12e",
            "e12",
            "-012",
            "18446744073709551616",
            "0x12",
        ] {
            assert_eq!(id(text, b'.').unwrap(), text);
        }
    }

    #[test]
    fn what_names_nobody_is_no_id() {
        for text in ["", " ", "\u{a0}", "NaN", "nan "] {
            assert_eq!(id(text, b'.'), Err(NoId::Missing), "{text:?}");
        }
        for text in
            ["inf", "-Infinity", "9007199254740992.0", "1e+16", "1.0e300", "1.5e+999999999999999999", "123456789012345678901234567890.0"]
        {
            assert_eq!(id(text, b'.'), Err(NoId::Inexact), "{text}");
        }
        for number in [9_007_199_254_740_992.0, 1e300, f64::INFINITY] {
            assert_eq!(id_of(number), Err(NoId::Inexact));
        }
        assert_eq!(id_of(f64::NAN), Err(NoId::Missing));
    }

    #[test]
    fn ids_that_look_alike_are_near_and_others_are_not() {
        for alike in [
            &[
                "12",
                "012",
                "12.00",
                "１２",
                "1.2e1",
                "1 2",
                "12,0",
                "'12",
                "#12",
                "\u{661}\u{662}",
                "\u{967}\u{968}",
                "1\u{ad}2",
                "1-2",
                "(12)",
            ][..],
            &[
                "A12",
                "a12",
                "a012",
                "A 12",
                "a\u{a0}12",
                "Ａ１２",
                "a\u{200b}12",
                "A-12",
                "A\u{2010}12",
                "a_12",
                "A/0012",
                "A\u{6f1}\u{6f2}",
            ],
            &["Müller", "MÜLLER", "mu\u{308}ller"],
            &["Stra\u{df}e", "STRASSE", "strasse", "STRA\u{1e9e}E"],
            &["\u{130}", "i", "I", "\u{131}"],
            &["\u{3c3}\u{3c2}", "\u{3a3}\u{3a3}"],
            &["550e8400-e29b-41d4-a716-006655440000", "550E8400E29B41D4A716006655440000", "{550e8400-e29b-41d4-a716-006655440000}"],
            &["1234567", "1,234,567", "1.234.567", "1'234'567", "1 234 567", "01234567", "+1234567"],
            &["100000", "1e5", "1E+05"],
            &["0", "000", "0.0", "-0"],
            &["-12", "12", "+12", "-012"],
            &["0A1", "A1", "a01"],
            &[".5", "0.5", "0,50", "0.500"],
            &["12.500", "12.5", "12,5", "12500", "12,500", "+12.500", "12.5000"],
        ] {
            for other in alike {
                assert_eq!(near(other), near(alike[0]), "{other}");
            }
        }
        let apart = ["12", "120", "1.2", "a12", "a120", "12a", "b12", "", "1,2345", "12e", "3e12", "ss", "s"];
        for (position, one) in apart.iter().enumerate() {
            for other in &apart[position + 1..] {
                assert_ne!(near(one), near(other), "{one} {other}");
            }
        }
    }
}
