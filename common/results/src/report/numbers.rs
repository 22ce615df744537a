//! Numbers and words as they are read.

use dp_pvi_accounting::unit::rounded_up;

/// Numbers from here on are written with a power of ten.
const LONGEST: f64 = 1e9;

/// With a power of ten.
fn powered(value: f64) -> String {
    unusual(value).unwrap_or_else(|| format!("{value:.3e}"))
}

/// A number with so many decimals; one that would be too long as short as it can be read.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if value.abs() < LONGEST { format!("{value:.decimals$}") } else { number(value) }
}

/// What is written where a number is none, or has no end.
fn unusual(value: f64) -> Option<String> {
    let words = if value.is_nan() {
        "not a number"
    } else if value == f64::INFINITY {
        "∞"
    } else if value == f64::NEG_INFINITY {
        "−∞"
    } else {
        return None;
    };
    Some(words.to_owned())
}

/// A number as short as it can be read.
pub(crate) fn number(value: f64) -> String {
    if let Some(words) = unusual(value) {
        return words;
    }
    let size = value.abs();
    let text = if value == 0.0 {
        return "0".into();
    } else if !(1e-3..1e5).contains(&size) {
        let text = format!("{value:.2e}");
        let Some((digits, power)) = text.split_once('e') else { return text };
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    } else if size >= 100.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A bound, rounded up, as short as it can be read.
pub(crate) fn bound(value: f64) -> String {
    if value.abs() < LONGEST {
        let digits = if (1e-3..1e5).contains(&value) { 4 } else { 8 };
        rounded_up(value, digits).trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        // Larger by more than three decimals leave out.
        powered(value + 0.001 * value.abs())
    }
}

/// A number with two decimals, or more where it is small.
pub(crate) fn aligned(value: f64) -> String {
    with_decimals(value, decimals(value.abs()))
}

/// A number and the interval around it, with as many decimals as tell its ends apart.
pub(crate) fn with_interval(value: f64, lower: f64, upper: f64) -> (String, String) {
    let decimals = decimals(upper - lower);
    (with_decimals(value, decimals), format!("{} to {}", with_decimals(lower, decimals), with_decimals(upper, decimals)))
}

/// An interval.
pub(crate) fn interval(lower: f64, upper: f64) -> String {
    with_interval(lower, lower, upper).1
}

/// Decimals of numbers that differ by this much: two digits of the difference; two decimals where that is not too much.
fn decimals(size: f64) -> usize {
    if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 0.1 || size == 0.0 || size.is_nan() {
        2
    } else {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 7")]
        let decimals = (1.0 - size.log10().floor()).clamp(2.0, 7.0) as usize;
        decimals
    }
}

fn with_decimals(value: f64, decimals: usize) -> String {
    if let Some(words) = unusual(value) {
        return words;
    }
    if value.abs() >= 1e6 || (value != 0.0 && value.abs() < 1e-6) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.decimals$}");
    // -0.00 is 0.00.
    if text.starts_with('-') && text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.')) { text[1..].to_owned() } else { text }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", fixed(100.0 * share, 1))
}

/// A whole number with commas between thousands.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One word for one, another for more.
pub(crate) fn plural<'a>(count: usize, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

/// A sentence with a capital letter.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.125, "0.125"),
            (0.333_333, "0.3333"),
            (12.345_678, "12.346"),
            (1234.56, "1234.6"),
            (1e-5, "1e-5"),
            (2.5e7, "2.5e7"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn numbers_beside_each_other_have_the_same_decimals() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.5, "1.50"),
            (-0.25, "-0.25"),
            (0.0421, "0.042"),
            (0.004_21, "0.0042"),
            (31.42, "31.4"),
            (271.8, "272"),
            (1e-9, "1.0e-9"),
            (2.5e9, "2.5e9"),
        ] {
            assert_eq!(aligned(value), text);
        }
        assert_eq!(with_interval(1.573, 1.448, 1.702), ("1.57".into(), "1.45 to 1.70".into()));
        assert_eq!(with_interval(1.002_31, 1.000_12, 1.004_5), ("1.0023".into(), "1.0001 to 1.0045".into()));
        assert_eq!(interval(-0.001, 12.34), "0.0 to 12.3");
    }

    #[test]
    fn no_number_is_long_and_what_is_none_is_said() {
        for value in [1e99, -1e99, 1e308, f64::MIN, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let (estimate, ends) = with_interval(value, -value, value);
            for text in
                [number(value), bound(value), aligned(value), fixed(value, 3), percent(value), estimate, interval(-value, value), ends]
            {
                assert!(text.len() < 40 && !text.contains("inf") && !text.contains("NaN"), "{text}");
            }
        }
        assert_eq!(
            (number(f64::INFINITY), fixed(f64::NEG_INFINITY, 2), number(f64::NAN)),
            ("∞".into(), "−∞".into(), "not a number".into())
        );
        assert_eq!((fixed(0.26, 1), fixed(12.3456, 2), percent(0.125)), ("0.3".into(), "12.35".into(), "12.5 %".into()));
        for value in [1.0e9, 1.2905e302, 9.9999e20] {
            assert!(bound(value).parse::<f64>().unwrap() >= value, "{}", bound(value));
        }
    }

    #[test]
    fn whole_numbers_have_commas_and_bounds_are_rounded_up() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (16_800, "16,800"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), text);
        }
        assert_eq!(bound(0.999_91), "1");
        assert_eq!(bound(1.000_01), "1.0001");
    }
}
