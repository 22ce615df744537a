//! The regression sets of the DP-SEP paper with its printed results, and how their rows are scaled.

use dp_pvi_inference::records::RecordTable;

use super::dp_sep::{mean_and_deviation, wrong};
use super::{Options, ReproduceError};

/// A data set with the paper's numbers: RMSE and log-likelihood of VI, EP, SEP, clipped SEP, DP-SEP, and RMSE of its point estimate.
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) features: usize,
    pub(super) hidden: usize,
    /// Splits of a full run, of those that are published.
    pub(super) splits: usize,
    /// Passes of SEP and clipped SEP, and of EP and the baselines.
    pub(super) passes: [u32; 2],
    /// How many times N(0, 1)/√(inputs + 1) the means are at which unprotected expectation propagation begins.
    pub(super) spread: f64,
    pub(super) rmse: [&'static str; 6],
    pub(super) log_likelihood: [&'static str; 5],
    /// Whether a run goes on without it where there is no file.
    pub(super) optional: bool,
}

pub(super) const SETS: [Set; 6] = [
    Set {
        name: "wine",
        features: 11,
        hidden: 50,
        splits: 10,
        passes: [100, 60],
        spread: 1.0,
        rmse: ["0.646 ± 0.008", "0.614 ± 0.038", "0.623 ± 0.044", "0.627 ± 0.041", "0.627 ± 0.036", "0.645 ± 0.010"],
        log_likelihood: ["-0.980 ± 0.013", "-0.926 ± 0.049", "-0.936 ± 0.064", "-0.938 ± 0.058", "-0.938 ± 0.049"],
        optional: false,
    },
    Set {
        name: "power",
        features: 4,
        hidden: 50,
        splits: 10,
        passes: [100, 40],
        spread: 6.0,
        rmse: ["4.327 ± 0.035", "4.098 ± 0.139", "4.061 ± 0.136", "4.013 ± 0.125", "4.032 ± 0.139", "4.182 ± 0.040"],
        log_likelihood: ["-2.890 ± 0.010", "-2.830 ± 0.031", "-2.821 ± 0.032", "-2.809 ± 0.029", "-2.814 ± 0.032"],
        optional: false,
    },
    Set {
        name: "kin8nm",
        features: 8,
        hidden: 50,
        splits: 10,
        passes: [100, 40],
        spread: 1.0,
        rmse: ["0.099 ± 0.0009", "0.088 ± 0.0044", "0.089 ± 0.0042", "0.078 ± 0.0033", "0.078 ± 0.0022", "0.091 ± 0.0015"],
        log_likelihood: ["0.897 ± 0.010", "1.007 ± 0.049", "0.999 ± 0.048", "1.121 ± 0.033", "1.125 ± 0.021"],
        optional: false,
    },
    Set {
        name: "naval",
        features: 16,
        hidden: 50,
        splits: 5,
        passes: [100, 30],
        spread: 10.0,
        rmse: ["0.005 ± 0.0005", "0.003 ± 0.0002", "0.002 ± 0.0001", "0.002 ± 0.0002", "0.002 ± 0.0003", "0.001 ± 0.0001"],
        log_likelihood: ["3.734 ± 0.116", "4.164 ± 0.056", "4.609 ± 0.053", "4.710 ± 0.075", "4.686 ± 0.105"],
        optional: false,
    },
    Set {
        name: "protein",
        features: 9,
        hidden: 100,
        splits: 2,
        passes: [40, 15],
        spread: 6.0,
        rmse: ["4.842 ± 0.031", "4.654 ± 0.057", "4.602 ± 0.065", "4.581 ± 0.060", "4.585 ± 0.059", "4.539 ± 0.029"],
        log_likelihood: ["-2.992 ± 0.006", "-2.957 ± 0.012", "-2.945 ± 0.014", "-2.941 ± 0.013", "-2.941 ± 0.013"],
        optional: false,
    },
    // The paper prints RMSE of its point estimate and of DP-SEP in table 5; the others are not compared with here.
    Set {
        name: "year",
        features: 90,
        hidden: 100,
        splits: 1,
        passes: [2, 1],
        spread: 6.0,
        rmse: ["", "", "", "", "8.862", "8.932"],
        log_likelihood: [""; 5],
        optional: true,
    },
];

/// Centre and scale of every column, the target last.
pub(super) type Scale = Vec<(f64, f64)>;

/// Positions of training rows and of test rows.
pub(super) type Split = (Vec<usize>, Vec<usize>);

/// All rows of a set, the target last, and its splits.
pub(super) struct Data {
    rows: Vec<Vec<f64>>,
    pub(super) splits: Vec<Split>,
}

impl Data {
    /// The published file and splits, or nothing where an optional set is not there.
    ///
    /// Year is read as its publisher writes it, in `uci-regression/year/data.txt.gz`: commas, the year first, and the first 463,715 rows for training.
    pub(super) fn read(options: &Options<'_>, set: &Set) -> Result<Option<Self>, ReproduceError> {
        let folder = options.data.join("uci-regression").join(set.name);
        let file = folder.join("data.txt.gz");
        if set.optional && !file.exists() {
            return Ok(None);
        }
        let rows = Self::rows(&dp_pvi_data::read_text(&file)?, set)?;
        let splits = if set.optional {
            let training = 463_715.min(rows.len() * 9 / 10);
            vec![((0..training).collect(), (training..rows.len()).collect())]
        } else {
            Self::published(&dp_pvi_data::read_text(&folder.join("splits.txt.gz"))?)?
        };
        let complete = !splits.is_empty() && splits.iter().all(|(train, test)| !train.is_empty() && !test.is_empty());
        let valid = rows.iter().all(|row| row.len() == set.features + 1)
            && splits.iter().all(|s: &Split| s.0.iter().chain(&s.1).all(|i| *i < rows.len()));
        if complete && valid {
            Ok(Some(Self { rows, splits }))
        } else {
            Err(ReproduceError::Result(format!("{} is not the published set", set.name)))
        }
    }

    /// Numbers of a file, features first and the target last.
    fn rows(text: &str, set: &Set) -> Result<Vec<Vec<f64>>, ReproduceError> {
        let number = |text: &str| text.parse::<f64>().map_err(wrong);
        let words = |line: &str| line.split([' ', ',', '\t']).filter(|w| !w.is_empty()).map(number).collect();
        let mut rows = text.lines().map(words).collect::<Result<Vec<Vec<f64>>, _>>()?;
        for row in &mut rows {
            if set.optional && !row.is_empty() {
                row.rotate_left(1);
            }
            // Naval has another target behind the one that is published with.
            row.truncate(set.features + 1);
        }
        Ok(rows)
    }

    fn published(text: &str) -> Result<Vec<Split>, ReproduceError> {
        let mut splits: Vec<Split> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(split), Some(part)) = (words.next(), words.next()) else { continue };
            let split = split.parse::<usize>().map_err(wrong)?;
            let indices = words.map(|word| word.parse::<usize>().map_err(wrong)).collect::<Result<Vec<_>, _>>()?;
            if split >= splits.len() {
                splits.resize(split + 1, Default::default());
            }
            if part == "train" { splits[split].0 = indices } else { splits[split].1 = indices }
        }
        Ok(splits)
    }

    /// Mean and standard deviation of the training rows: a function of the records, so not for a private run.
    pub(super) fn standard(&self, train: &[usize]) -> Scale {
        let column = |j: usize| {
            let values: Vec<f64> = train.iter().map(|&i| self.rows[i][j]).collect();
            let (mean, deviation) = mean_and_deviation(&values);
            // A constant column stays at 0.
            (mean, if deviation > 1e-9 * mean.abs().max(1e-3) { deviation } else { 1.0 })
        };
        (0..self.columns()).map(column).collect()
    }

    /// Middle and half-width/√3 of the published file's ranges, which are taken as public.
    pub(super) fn ranges(&self) -> Scale {
        let column = |j: usize| {
            let values = self.rows.iter().map(|row| row[j]);
            let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
            (f64::midpoint(low, high), if high - low > 1e-9 { (high - low) / 12_f64.sqrt() } else { 1.0 })
        };
        (0..self.columns()).map(column).collect()
    }

    fn columns(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// Scaled rows as records.
    pub(super) fn table(&self, rows: &[usize], scale: &Scale) -> Result<RecordTable, ReproduceError> {
        let target = self.columns() - 1;
        let mut builder = RecordTable::builder(target);
        let indices: Vec<u32> = (0..u32::try_from(target).map_err(wrong)?).collect();
        for &i in rows {
            let value = |j: usize| (self.rows[i][j] - scale[j].0) / scale[j].1;
            builder.start_unit();
            builder.push(&indices, &(0..target).map(value).collect::<Vec<_>>(), value(target)).map_err(wrong)?;
        }
        Ok(builder.finish())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    use super::{Data, SETS};

    fn data() -> Data {
        let rows = vec![vec![0.0, 7.0, 1.0], vec![2.0, 7.0, 5.0], vec![4.0, 7.0, 3.0], vec![10.0, 7.0, -1.0]];
        Data { rows, splits: vec![(vec![0, 1, 2], vec![3])] }
    }

    #[test]
    fn scales_of_training_rows_ignore_test_rows_and_ranges_hold_all() {
        let data = data();
        let standard = data.standard(&data.splits[0].0);
        assert!(
            standard.iter().zip([(2.0, 2.0), (7.0, 1.0), (3.0, 2.0)]).all(|(a, b)| (a.0 - b.0).abs() < 1e-12 && (a.1 - b.1).abs() < 1e-12)
        );
        let ranges = data.ranges();
        assert!((ranges[0].0 - 5.0).abs() < 1e-12 && (ranges[0].1 * 12_f64.sqrt() - 10.0).abs() < 1e-12);
        // Uniform columns have variance 1, and everything lies within √3.
        let table = data.table(&[0, 1, 2, 3], &ranges).unwrap();
        assert!(table.records().all(|r| r.values.iter().chain([&r.target]).all(|v| v.abs() <= 3_f64.sqrt() + 1e-12)));
    }

    #[test]
    fn rows_end_with_the_target_that_is_published_with() {
        let set = |name: &str| SETS.iter().find(|set| set.name == name).unwrap();
        let power = Data::rows("1 2  3 4 5 6\n-1e-1 0 0 0 7\n", set("power")).unwrap();
        assert_eq!(power, vec![vec![1.0, 2.0, 3.0, 4.0, 5.0], vec![-0.1, 0.0, 0.0, 0.0, 7.0]]);
        let year: Vec<String> = (0..91).map(|i| (2000 + i).to_string()).collect();
        let rows = Data::rows(&year.join(","), set("year")).unwrap();
        assert_eq!((rows[0].len(), rows[0][0] as u32, rows[0][90] as u32), (91, 2001, 2000));
        assert!(Data::rows("1 x", set("power")).is_err());
    }

    #[test]
    fn published_splits_are_read_and_every_set_has_the_papers_numbers() {
        let splits = Data::published("0 train 1 2 3\n0 test 4\n1 train 4 1\n1 test 2 3\n").unwrap();
        assert_eq!(splits, vec![(vec![1, 2, 3], vec![4]), (vec![4, 1], vec![2, 3])]);
        assert!(Data::published("0 train x").is_err());
        assert!(SETS.iter().all(|set| set.optional || set.rmse.iter().chain(&set.log_likelihood).all(|n| n.contains('±'))));
    }
}
