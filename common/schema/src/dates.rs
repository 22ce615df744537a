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

    /// The Julian day of a text in this format. ISO texts may go on with a time of day without a zone, which is cut off.
    #[must_use]
    pub fn julian_day(self, text: &[u8]) -> Option<i32> {
        let (text, rest) = text.split_at_checked(10)?;
        let goes_on = self == Self::Iso && time_of(rest) == Some(Zone::None);
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
    ///
    /// # Errors
    /// It is no date, or a time with a zone.
    pub fn days(&self, text: &[u8]) -> Result<f64, NoDate> {
        match self.format.julian_day(text).or_else(|| DateFormat::Iso.julian_day(text)) {
            Some(day) => Ok(f64::from(day) - f64::from(self.since)),
            None => {
                let zoned = text
                    .split_at_checked(10)
                    .is_some_and(|(date, rest)| DateFormat::Iso.julian_day(date).is_some() && time_of(rest) == Some(Zone::Stated));
                Err(if zoned { NoDate::Zoned } else { NoDate::Other })
            }
        }
    }
}

/// Why a text has no day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDate {
    /// A time with a zone: on which day it falls depends on where one is.
    Zoned,
    /// No date of the column's format.
    Other,
}

/// The ISO text of a time without a zone, that is counted from 1970-01-01 in so many parts of a second: `2024-05-17 08:30:00.25`, as PostgreSQL shows it. Absent outside the years 0 to
/// 9999.
#[must_use]
pub fn iso_time(count: i64, parts: i64) -> Option<String> {
    const DAY: i64 = 86_400;
    let (seconds, part) = (count.div_euclid(parts), count.rem_euclid(parts));
    let (day, second) = (iso_text(seconds.div_euclid(DAY))?, seconds.rem_euclid(DAY));
    let digits = parts.ilog10() as usize;
    let fraction = if part == 0 { String::new() } else { format!(".{part:0digits$}") };
    let fraction = fraction.trim_end_matches('0');
    Some(format!("{day} {:02}:{:02}:{:02}{fraction}", second / 3600, second / 60 % 60, second % 60))
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

/// Whether a time of day says where it is.
#[derive(PartialEq)]
enum Zone {
    Stated,
    None,
}

/// A time of day behind a date: `T08:30:00Z` and ` 08:30:00.5+01` with a zone, ` 08:30:00.5` without.
fn time_of(text: &[u8]) -> Option<Zone> {
    let [b'T' | b' ', hour, minute, b':', rest @ ..] = text else { return None };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.')).count();
    let (time, zone) = rest.split_at(length);
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'+' | b'-' | b' ' | b'/' | b'_' | b'[' | b']');
    let is_time = hour.is_ascii_digit() && minute.is_ascii_digit() && !time.is_empty() && zone.iter().all(known);
    is_time.then_some(if zone.is_empty() { Zone::None } else { Zone::Stated })
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
            (DateFormat::Iso, "2015-02-01T23:59:59", Some(31.0)),
            (DateFormat::Iso, "2015-02-01 23:59:59.5", Some(31.0)),
            (DateFormat::Iso, "2015-02-01 23:59", Some(31.0)),
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
            assert_eq!(DateRule::new(format, "2015-01-01").unwrap().days(text.as_bytes()), days.ok_or(NoDate::Other), "{text}");
        }
        for since in ["2015-13-01", "2015-01-01 10:00", "01.01.2015", ""] {
            assert_eq!(DateRule::new(DateFormat::Iso, since), None, "{since}");
        }
    }

    #[test]
    fn a_time_with_a_zone_has_no_day() {
        let rule = DateRule::new(DateFormat::DayDots, "2015-01-01").unwrap();
        for zone in ["Z", "+01:00", "+01", "-0500", " UTC", " Europe/Berlin", "[Europe/Berlin]"] {
            assert_eq!(rule.days(format!("2015-02-01T23:00:00{zone}").as_bytes()), Err(NoDate::Zoned), "{zone}");
        }
        assert_eq!(rule.days(b"2015-02-30T23:00:00Z"), Err(NoDate::Other));
    }

    #[test]
    fn stored_times_have_the_text_that_postgresql_shows() {
        for (count, parts, text) in [
            (0, 1_000, "1970-01-01 00:00:00"),
            (-1, 1_000, "1969-12-31 23:59:59.999"),
            (1_715_934_600_250_000, 1_000_000, "2024-05-17 08:30:00.25"),
            (1_715_934_600_000_000_001, 1_000_000_000, "2024-05-17 08:30:00.000000001"),
        ] {
            assert_eq!(iso_time(count, parts).unwrap(), text);
        }
        assert_eq!(iso_time(i64::MAX, 1_000), None);
    }

    #[test]
    fn stored_days_have_their_iso_text() {
        assert_eq!([iso_text(0), iso_text(-1), iso_text(16_436)].map(Option::unwrap), ["1970-01-01", "1969-12-31", "2015-01-01"]);
        assert_eq!((iso_text(i64::MAX), iso_text(4_000_000)), (None, None));
    }
}
