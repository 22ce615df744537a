//! Priors, the typical row and the clipping norm, from what is public of columns.
//!
//! A number enters a row as (value − centre)/scale. In these units its typical spread s is its published standard deviation, else 0.15 of its range; its mean x̄ is the published one,
//! else the middle of its range. Truths and levels have s = 1. A coefficient then has the prior N(0, (p u/s)²), with p = 2.5 for log odds and numbers and 1 for log rates, and u the
//! label's typical spread, 1 where the label has no unit. The intercept's mean is known where the label's share, rate or mean is published; its variance has Σ (p u x̄/s)² beside its own, since rows
//! are not centred at 0.
//!
//! **Source**: this project; the scale 2.5 for standardised columns is that of Gelman, Jakulin, Pittau and Su 2008.

/// Part of a number's public range that is taken for its standard deviation.
const SPREAD_OF_RANGE: f64 = 0.15;

/// R over the root of a typical row's mean square.
const OF_TYPICAL_ROW: f64 = 0.8;

/// C over the largest residual times R.
const OF_LONGEST_TERM: f64 = 0.3;

/// Where the residual of a number is cut, in standard deviations.
pub const CUT_OF_NUMBERS: f64 = 3.5;

/// Where the residual of a count is cut, in standard deviations of the count, with what centring adds.
const CUT_OF_COUNTS: f64 = 2.7;

/// Expected count of a record where no rate is published.
const USUAL_COUNT: f64 = 4.0;

/// Standard deviations of a coefficient of typical units: of log odds and of numbers, and of log rates.
const COEFFICIENT: f64 = 2.5;
const COEFFICIENT_OF_RATES: f64 = 1.0;

/// Of an intercept whose share or rate is published, and of one that is not.
const KNOWN_INTERCEPT: f64 = 1.5;
const UNKNOWN_INTERCEPT: f64 = 5.0;

/// What is public of one entry of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// s: how much of it is a typical difference between two records.
    pub spread: f64,
    /// x̄, where a number takes part in it; 0 of other entries, whose 0 is a value that records have.
    pub mean: f64,
    /// Mean of its square.
    pub square: f64,
}

/// What is public of a column of features.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// A number that is encoded as (value − centre)/scale.
    Number {
        /// The public range, in the column's own unit.
        range: [f64; 2],
        /// What is taken off.
        centre: f64,
        /// By which is divided, above 0.
        scale: f64,
        /// The published mean, in the column's own unit.
        mean: Option<f64>,
        /// The published standard deviation, in the column's own unit.
        sd: Option<f64>,
    },
    /// 0 or 1.
    Truth {
        /// The published share of 1.
        share: Option<f64>,
    },
    /// One entry for every level but the first.
    Category {
        /// Number of levels, at least 1.
        levels: usize,
        /// The published shares of these levels, added up.
        share: Option<f64>,
    },
}

impl Column {
    /// Number of its coefficients.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Number { .. } | Self::Truth { .. } => 1,
            Self::Category { levels, .. } => levels.saturating_sub(1),
        }
    }

    /// Whether it has no coefficient.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its entries.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        match *self {
            Self::Number { range: [lower, upper], centre, scale, mean, sd } => {
                let spread = sd.unwrap_or(SPREAD_OF_RANGE * (upper - lower)) / scale;
                let mean = (mean.unwrap_or_else(|| f64::midpoint(lower, upper)) - centre) / scale;
                vec![Entry { spread, mean, square: spread * spread + mean * mean }]
            }
            Self::Truth { share } => vec![Entry { spread: 1.0, mean: 0.0, square: share.unwrap_or(0.5) }],
            #[allow(clippy::cast_precision_loss, reason = "a number of levels")]
            Self::Category { levels, share } => {
                let others = levels.saturating_sub(1).max(1) as f64;
                let square = share.unwrap_or(1.0 - 1.0 / levels.max(1) as f64) / others;
                vec![Entry { spread: 1.0, mean: 0.0, square }; self.len()]
            }
        }
    }

    /// The largest square of its entries, added up.
    #[must_use]
    pub(crate) fn largest_square(&self) -> f64 {
        match *self {
            Self::Number { range, centre, scale, .. } => range.map(|end| ((end - centre) / scale).powi(2)).into_iter().fold(0.0, f64::max),
            Self::Truth { .. } => 1.0,
            Self::Category { .. } => f64::from(u8::from(!self.is_empty())),
        }
    }
}

/// What is public of a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Label {
    /// One of two classes: coefficients are log odds ratios.
    Class {
        /// The published share of 1.
        share: Option<f64>,
    },
    /// A count: coefficients are logarithms of rate ratios.
    Count(Rate),
    /// A number: coefficients have its unit.
    Number {
        /// Where its middle is.
        centre: Centre,
        /// u: the published standard deviation, else 0.15 of the range.
        spread: f64,
    },
}

/// What is public of how often something happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// A published rate for one unit of the offset, and the middle of the offset's range in that unit (1 without an offset).
    Published {
        /// Events a unit.
        rate: f64,
        /// Units a record.
        units: f64,
    },
    /// The logarithm of the middle of the offset's range (0 without an offset).
    Unknown {
        /// As it is added to predictors.
        mean_offset: f64,
    },
}

/// Where the middle of a number is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Centre {
    /// The published mean.
    Mean(f64),
    /// The middle of the range.
    Middle(f64),
}

/// Independent normal priors of an intercept and of the coefficients of columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Priors {
    /// Mean and standard deviation of the intercept.
    pub intercept: [f64; 2],
    /// Standard deviations of the coefficients, in the order of columns; their means are 0.
    pub coefficients: Vec<f64>,
}

impl Label {
    /// Standard deviation of a coefficient of typical units: `scale` times the label's own unit; 2.5, or 1 of log rates, where nothing is said.
    #[must_use]
    pub fn coefficient(&self, scale: Option<f64>) -> f64 {
        let (usual, unit) = match *self {
            Self::Class { .. } => (COEFFICIENT, 1.0),
            Self::Count(_) => (COEFFICIENT_OF_RATES, 1.0),
            Self::Number { spread, .. } => (COEFFICIENT, spread),
        };
        scale.unwrap_or(usual) * unit
    }

    /// Priors of the coefficients of these entries and of an intercept, with the standard deviation `coefficient` of typical units.
    #[must_use]
    pub fn priors(&self, coefficient: f64, entries: &[Entry]) -> Priors {
        let [mean, sd] = match *self {
            Self::Class { share: Some(share) } => [(share / (1.0 - share)).ln(), KNOWN_INTERCEPT],
            Self::Class { share: None } => [0.0, UNKNOWN_INTERCEPT],
            Self::Count(Rate::Published { rate, .. }) => [rate.ln(), KNOWN_INTERCEPT],
            Self::Count(Rate::Unknown { mean_offset }) => [-mean_offset, UNKNOWN_INTERCEPT],
            Self::Number { centre: Centre::Mean(mean), spread } => [mean, COEFFICIENT * spread],
            Self::Number { centre: Centre::Middle(middle), spread } => [middle, UNKNOWN_INTERCEPT * spread],
        };
        let off_centre: f64 = entries.iter().map(|entry| (coefficient * entry.mean / entry.spread).powi(2)).sum();
        Priors {
            intercept: [mean, (sd * sd + off_centre).sqrt()],
            coefficients: entries.iter().map(|entry| coefficient / entry.spread).collect(),
        }
    }

    /// C for rows of unit R: 0.3 of the longest term that a residual may give. Counts have the dispersion φ, ∞ for those of a Poisson distribution. For numbers it is in units of 1/σ.
    #[must_use]
    pub fn clip_norm(&self, row: f64, dispersion: f64) -> f64 {
        let residual = match *self {
            Self::Class { .. } => 1.0,
            Self::Count(rate) => CUT_OF_COUNTS * rate.curvature(dispersion).sqrt(),
            Self::Number { .. } => CUT_OF_NUMBERS,
        };
        OF_LONGEST_TERM * residual * row
    }
}

impl Rate {
    /// c̄ = mφ/(m + φ), the curvature of a record with the expected count m.
    #[must_use]
    pub fn curvature(&self, dispersion: f64) -> f64 {
        let expected = match *self {
            Self::Published { rate, units } => rate * units,
            Self::Unknown { .. } => USUAL_COUNT,
        };
        expected / (1.0 + expected / dispersion)
    }
}

/// The length that no row of these columns and an intercept exceeds.
#[must_use]
pub fn longest_row(columns: &[Column]) -> f64 {
    (1.0 + columns.iter().map(Column::largest_square).sum::<f64>()).sqrt()
}

/// R: 0.8 of the root of a row's mean square, and no more than the longest row. It is a unit: no row is shortened to it.
#[must_use]
pub fn typical_row(entries: &[Entry], longest: f64) -> f64 {
    let typical = OF_TYPICAL_ROW * (1.0 + entries.iter().map(|entry| entry.square).sum::<f64>()).sqrt();
    typical.min(longest)
}

#[cfg(test)]
mod tests {
    use super::{Centre, Column, Entry, Label, Priors, Rate, longest_row, typical_row};

    fn entries(columns: &[Column]) -> Vec<Entry> {
        columns.iter().flat_map(Column::entries).collect()
    }

    fn priors(label: Label, columns: &[Column]) -> Priors {
        label.priors(label.coefficient(None), &entries(columns))
    }

    fn number(centre: f64) -> Column {
        Column::Number { range: [0.0, 100.0], centre, scale: 10.0, mean: Some(50.0), sd: Some(20.0) }
    }

    /// A coefficient of a typical unit is the same whatever unit the file has.
    #[test]
    fn priors_do_not_depend_on_the_unit_of_a_column() {
        let metres = Column::Number { range: [0.0, 2.0], centre: 1.0, scale: 0.5, mean: None, sd: None };
        let inches = Column::Number { range: [0.0, 80.0], centre: 40.0, scale: 20.0, mean: None, sd: None };
        let label = Label::Class { share: None };
        assert_eq!(priors(label, &[metres]), priors(label, &[inches]));
    }

    #[test]
    fn a_column_that_is_not_centred_widens_the_intercept() {
        let label = Label::Class { share: Some(0.5) };
        let of = |centre: f64| priors(label, &[number(centre)]);
        assert_eq!(of(50.0).intercept, [0.0, 1.5]);
        // x̄ = 5 and s = 2.
        assert!((of(0.0).intercept[1].powi(2) - (1.5f64.powi(2) + (2.5f64 * 2.5).powi(2))).abs() < 1e-12);
        assert_eq!(of(0.0).coefficients, [1.25]);
    }

    #[test]
    fn the_prior_of_a_number_has_its_unit() {
        let label = |unit: f64| Label::Number { centre: Centre::Middle(3.0 * unit), spread: 2.0 * unit };
        let (one, thousand) = (priors(label(1.0), &[number(50.0)]), priors(label(1000.0), &[number(50.0)]));
        assert_eq!((one.intercept, one.coefficients[0]), ([3.0, 10.0], 2.5));
        assert_eq!((thousand.intercept, thousand.coefficients[0]), ([3000.0, 1e4], 2500.0));
    }

    #[test]
    fn a_row_is_a_unit_and_never_longer_than_the_longest() {
        let category = Column::Category { levels: 3, share: None };
        let columns = [number(50.0), category, Column::Truth { share: Some(0.04) }];
        assert!((longest_row(&columns) - (1.0f64 + 25.0 + 1.0 + 1.0).sqrt()).abs() < 1e-12);
        assert!((typical_row(&entries(&columns), longest_row(&columns)) - 0.8 * (1.0f64 + 4.0 + 2.0 / 3.0 + 0.04).sqrt()).abs() < 1e-12);
        // A published spread beyond the range.
        let beyond = Column::Number { range: [0.0, 1.0], centre: 0.5, scale: 1.0, mean: None, sd: Some(9.0) };
        let beyond = [beyond];
        assert_eq!(typical_row(&entries(&beyond), longest_row(&beyond)), longest_row(&beyond));
        let one = Column::Category { levels: 1, share: None };
        assert!(one.is_empty() && one.largest_square() == 0.0 && one.entries().is_empty());
    }

    /// Few events: the term of a record is about as long as it is rare; many: as its dispersion lets counts spread.
    #[test]
    fn the_clipping_norm_of_counts_follows_their_rate() {
        let of = |rate: f64, dispersion: f64| Label::Count(Rate::Published { rate, units: 10.0 }).clip_norm(1.0, dispersion);
        assert!((of(0.001, f64::INFINITY) - 0.3 * 2.7 * 0.1).abs() < 1e-12);
        assert!((of(1e9, 4.0) - 0.3 * 2.7 * 2.0).abs() < 1e-6);
        assert!((Label::Class { share: None }.clip_norm(2.0, 1.0) - 0.6).abs() < 1e-12);
    }
}
