//! Dates as numbers: whole days since a public date.

use time::{Date, Month};

/// How the cells of a date column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateFormat {
    /// `2015-01-31`.
    Iso,
    /// `31.01.2015`.
    DayDots,
    /// `31/01/2015`.
    DaySlashes,
    /// `01/31/2015`.
    MonthSlashes,
}

/// What turns the cells of a column into days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateRule {
    /// How cells are written.
    pub format: DateFormat,
    /// The date that is day 0, as a Julian day.
    since: i32,
}

impl DateFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Iso, Self::DayDots, Self::DaySlashes, Self::MonthSlashes];

    /// As a schema writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Iso => "YYYY-MM-DD",
            Self::DayDots => "DD.MM.YYYY",
            Self::DaySlashes => "DD/MM/YYYY",
            Self::MonthSlashes => "MM/DD/YYYY",
        }
    }

    /// The Julian day of a text in this format. ISO texts may go on with a time of day, which is cut off.
    #[must_use]
    pub fn julian_day(self, text: &[u8]) -> Option<i32> {
        let (text, rest) = text.split_at_checked(10)?;
        let goes_on = self == Self::Iso && is_time(rest);
        if !(rest.is_empty() || goes_on) {
            return None;
        }
        let (separator, [year, month, day]) = match self {
            Self::Iso => (b'-', [0..4, 5..7, 8..10]),
            Self::DayDots => (b'.', [6..10, 3..5, 0..2]),
            Self::DaySlashes => (b'/', [6..10, 3..5, 0..2]),
            Self::MonthSlashes => (b'/', [6..10, 0..2, 3..5]),
        };
        let separators = if self == Self::Iso { [4, 7] } else { [2, 5] };
        if separators.iter().any(|position| text[*position] != separator) {
            return None;
        }
        let month = Month::try_from(u8::try_from(digits(&text[month])?).ok()?).ok()?;
        let date = Date::from_calendar_date(i32::from(digits(&text[year])?), month, u8::try_from(digits(&text[day])?).ok()?);
        Some(date.ok()?.to_julian_day())
    }
}

impl DateRule {
    /// Days since `since`, which is written `2015-01-31`; absent if it is no date.
    #[must_use]
    pub fn new(format: DateFormat, since: &str) -> Option<Self> {
        let since = Some(since).filter(|since| since.len() == 10).and_then(|since| DateFormat::Iso.julian_day(since.as_bytes()))?;
        Some(Self { format, since })
    }

    /// The days from the schema's date to that of a cell. ISO texts are read whatever the format is: databases and Parquet hold such.
    #[must_use]
    pub fn days(&self, text: &[u8]) -> Option<f64> {
        let day = self.format.julian_day(text).or_else(|| DateFormat::Iso.julian_day(text))?;
        Some(f64::from(day) - f64::from(self.since))
    }
}

/// The ISO text of a day that is counted from 1970-01-01; absent outside the years 0 to 9999.
#[must_use]
pub fn iso_text(day: i64) -> Option<String> {
    const EPOCH: i64 = 2_440_588;
    let date = Date::from_julian_day(i32::try_from(day.checked_add(EPOCH)?).ok()?).ok()?;
    (0..=9999).contains(&date.year()).then(|| format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day()))
}

fn digits(text: &[u8]) -> Option<u16> {
    text.iter().try_fold(0_u16, |number, byte| byte.is_ascii_digit().then(|| 10 * number + u16::from(byte - b'0')))
}

/// A time of day behind a date: `T08:30:00Z`, ` 08:30:00.5+01`.
fn is_time(text: &[u8]) -> bool {
    match text {
        [b'T' | b' ', hour, minute, b':', rest @ ..] => {
            let known = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'+' | b'-' | b'Z');
            hour.is_ascii_digit() && minute.is_ascii_digit() && !rest.is_empty() && rest.iter().all(known)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn cells_become_days_since_the_schemas_date() {
        for (format, text, days) in [
            (DateFormat::Iso, "2015-01-01", Some(0.0)),
            (DateFormat::Iso, "2014-12-31", Some(-1.0)),
            (DateFormat::Iso, "2016-03-01", Some(425.0)),
            (DateFormat::Iso, "2015-02-01T23:59:59Z", Some(31.0)),
            (DateFormat::Iso, "2015-02-01 23:59:59.5+01:00", Some(31.0)),
            (DateFormat::Iso, "2015-02-01 x", None),
            (DateFormat::Iso, "2015-02-29", None),
            (DateFormat::Iso, "2015-2-1", None),
            (DateFormat::Iso, "01.02.2015", None),
            (DateFormat::DayDots, "01.02.2015", Some(31.0)),
            (DateFormat::DayDots, "2015-02-01", Some(31.0)),
            (DateFormat::DayDots, "01.13.2015", None),
            (DateFormat::DayDots, "01.02.2015 10:00", None),
            (DateFormat::DaySlashes, "01/02/2015", Some(31.0)),
            (DateFormat::MonthSlashes, "02/01/2015", Some(31.0)),
            (DateFormat::MonthSlashes, "13/01/2015", None),
            (DateFormat::DaySlashes, "", None),
        ] {
            assert_eq!(DateRule::new(format, "2015-01-01").unwrap().days(text.as_bytes()), days, "{text}");
        }
        for since in ["2015-13-01", "2015-01-01 10:00", "01.01.2015", ""] {
            assert_eq!(DateRule::new(DateFormat::Iso, since), None, "{since}");
        }
    }

    #[test]
    fn stored_days_have_their_iso_text() {
        assert_eq!([iso_text(0), iso_text(-1), iso_text(16_436)].map(Option::unwrap), ["1970-01-01", "1969-12-31", "2015-01-01"]);
        assert_eq!((iso_text(i64::MAX), iso_text(4_000_000)), (None, None));
    }
}
