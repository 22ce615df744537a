//! Kinds of columns, and which constants and dates are values of theirs.

use time::{Date, Month};

/// What a column's values are, as far as rules and filters have to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Whole numbers.
    Integer,
    /// `numeric`.
    Decimal,
    /// `double precision`.
    Float,
    /// `real`.
    Real,
    /// Texts.
    Text,
    /// `boolean`.
    Truth,
    /// `date`.
    Date,
    /// `timestamp` without zone.
    Time,
    /// `uuid`.
    Uuid,
    /// An enumeration of the site's own.
    Enumeration,
}

impl Family {
    /// Whether its values are numbers, whose texts have a point before the decimals.
    #[must_use]
    pub fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Decimal | Self::Float | Self::Real)
    }

    /// Whether a constant is a value of the family: then its cast cannot fail.
    #[must_use]
    pub fn has(self, constant: &str) -> bool {
        match self {
            Self::Integer => constant.parse::<i64>().is_ok(),
            Self::Decimal | Self::Float => constant.len() <= 64 && constant.parse::<f64>().is_ok_and(|number| is_stored(number, constant)),
            Self::Real => constant.len() <= 64 && constant.parse::<f32>().is_ok_and(|number| is_stored(number.into(), constant)),
            Self::Truth => constant == "true" || constant == "false",
            Self::Text | Self::Enumeration => true,
            Self::Uuid => {
                let groups: Vec<usize> = constant.split('-').map(str::len).collect();
                groups == [8, 4, 4, 4, 12] && constant.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
            }
            Self::Date | Self::Time => {
                day(constant).is_some_and(|day| day.year() > 0) && time_of_day(constant.get(10..).unwrap_or_default())
            }
        }
    }
}

/// Whether the number is neither infinite nor so small that it became 0.
fn is_stored(number: f64, text: &str) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    number.is_finite() && (number != 0.0 || !digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte)))
}

/// The day of `yyyy-mm-dd`, alone or before a time.
#[must_use]
pub fn day(text: &str) -> Option<Date> {
    let (date, rest) = text.split_at_checked(10)?;
    if !(rest.is_empty() || rest.starts_with(' ')) || rest.ends_with("BC") {
        return None;
    }
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    if parts.next().is_some() || !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return None;
    }
    Date::from_calendar_date(year.parse().ok()?, Month::try_from(month.parse::<u8>().ok()?).ok()?, day.parse().ok()?).ok()
}

/// Nothing, or a blank and `hh:mm`, `hh:mm:ss` or with a fraction.
fn time_of_day(text: &str) -> bool {
    let Some(text) = text.strip_prefix(' ') else { return text.is_empty() };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<Option<u8>> = whole.split(':').map(|part| (part.len() == 2).then(|| part.parse().ok()).flatten()).collect();
    let most = [23, 59, 59];
    (2..=3).contains(&parts.len())
        && parts.iter().zip(most).all(|(part, most)| part.is_some_and(|part| part <= most))
        && fraction.len() <= 6
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}
