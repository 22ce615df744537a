//! What has been published about a column: shares, means and standard deviations with their source. Only forecasts read them, before a run; they are
//! public numbers of other data (a register, a paper, a census) and never come from the records.

use serde::Deserialize;

use crate::NumberRule;

/// What is published about one column.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// The numbers.
    pub law: Marginal,
    /// Where they are from.
    pub source: String,
}

/// The published law of one column.
#[derive(Debug, Clone, PartialEq)]
pub enum Marginal {
    /// Share of true values, or of the positive class.
    Share(f64),
    /// Share of every level or class, in the schema's order; they add up to at most 1, and the rest has no value.
    Shares(Vec<f64>),
    /// Mean and standard deviation in the unit of the file.
    Moments {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        sd: f64,
    },
}

/// The keys as they are written, taken out of a column's table.
#[derive(Deserialize)]
pub(crate) struct Raw {
    share: Option<RawShare>,
    mean: Option<f64>,
    sd: Option<f64>,
    source: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawShare {
    One(f64),
    Many(Vec<f64>),
}

/// What the keys of a column must be.
pub(crate) enum Form<'a> {
    /// `share`, a number.
    Share,
    /// `share`, one number for every one of so many values.
    Shares(usize),
    /// `mean` and `sd`, inside the rule's range.
    Moments(&'a NumberRule),
    /// None of them.
    Nothing,
}

/// Rounding of published shares: percentages with one digit may add up to a little more than 1.
const ROUNDING: f64 = 0.02;

impl Raw {
    /// Takes the keys out of a table.
    pub(crate) fn take(table: &mut toml::Table) -> Result<Self, String> {
        let own = ["share", "mean", "sd", "source"].iter().filter_map(|key| table.remove_entry(*key)).collect::<toml::Table>();
        Self::deserialize(toml::Value::Table(own)).map_err(|error| {
            format!("`share`, `mean` and `sd` are published numbers and `source` says where they are from: {}", error.message())
        })
    }

    /// The published law, checked against what the column holds.
    pub(crate) fn checked(self, form: Form<'_>) -> Result<Option<Published>, String> {
        let Self { share, mean, sd, source } = self;
        if share.is_none() && mean.is_none() && sd.is_none() {
            return if source.is_none() {
                Ok(None)
            } else {
                Err("`source` says where `share`, or `mean` and `sd`, are from: give them, or remove it".into())
            };
        }
        let law = match (form, share, mean, sd) {
            (Form::Share, Some(RawShare::One(share)), None, None) => Marginal::Share(in_unit(share)?),
            (Form::Share, ..) => return Err("the published law of two values is one number: `share`, of those that are true".into()),
            (Form::Shares(values), Some(RawShare::Many(shares)), None, None) => Marginal::Shares(shares_of(shares, values)?),
            (Form::Shares(_), ..) => return Err("the published law of a list of values is `share = [ … ]`, one number a value".into()),
            (Form::Moments(rule), None, Some(mean), Some(sd)) => moments(mean, sd, rule)?,
            (Form::Moments(_), ..) => return Err("the published law of a number is `mean` and `sd`, both in the unit of the file".into()),
            (Form::Nothing, ..) => return Err("nothing can be published about a column that is not used: remove the keys".into()),
        };
        match source {
            Some(source) if !source.trim().is_empty() => Ok(Some(Published { law, source })),
            _ => Err("published numbers need a `source`: a text that says who published them, never the records of a site".into()),
        }
    }
}

fn in_unit(share: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("`share` must lie between 0 and 1".into()) }
}

fn shares_of(shares: Vec<f64>, values: usize) -> Result<Vec<f64>, String> {
    if shares.len() != values {
        return Err(format!("`share` has {} numbers for {values} values: give one for every value, in the same order", shares.len()));
    }
    shares.iter().try_for_each(|&share| in_unit(share).map(drop))?;
    let total: f64 = shares.iter().sum();
    if total <= 0.0 || total > 1.0 + ROUNDING {
        return Err(format!("the numbers of `share` add up to {total}: they must add up to more than 0 and at most 1"));
    }
    let scale = total.max(1.0);
    Ok(shares.into_iter().map(|share| share / scale).collect())
}

fn moments(mean: f64, sd: f64, rule: &NumberRule) -> Result<Marginal, String> {
    if !(mean >= rule.lower && mean <= rule.upper) {
        return Err("`mean` must lie between `lower` and `upper`: it is in the unit of the file".into());
    }
    if !(sd > 0.0 && sd <= rule.upper - rule.lower) {
        return Err("`sd` must be above 0 and at most `upper` - `lower`: it is in the unit of the file".into());
    }
    Ok(Marginal::Moments { mean, sd })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Marginal, Published};
    use crate::Schema;

    const SCHEMA: &str = r#"
[[columns]]
name = "age"
kind = "number"
lower = 18
upper = 100
centre = 60
scale = 20
mean = 61.5
sd = 14
source = "register, 2019"
[[columns]]
name = "male"
kind = "boolean"
share = 0.5
source = "census"
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["a", "b", "c"]
share = [0.5, 0.3, 0.1]
source = "annual report"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
share = 0.2
source = "register, 2019"
"#;

    #[test]
    fn published_numbers_are_read_with_their_source() {
        let schema = Schema::asking("died ~ .", SCHEMA).unwrap();
        let law = |at: usize| schema.columns()[at].published.clone().unwrap().law;
        assert_eq!(law(0), Marginal::Moments { mean: 61.5, sd: 14.0 });
        assert_eq!(law(1), Marginal::Share(0.5));
        assert_eq!(law(2), Marginal::Shares(vec![0.5, 0.3, 0.1]));
        assert_eq!(schema.label().published, Some(Published { law: Marginal::Share(0.2), source: "register, 2019".into() }));
        // Percentages that were rounded.
        let rounded = Schema::asking("died ~ .", &SCHEMA.replace("0.5, 0.3, 0.1", "0.5, 0.3, 0.21")).unwrap();
        let Some(Published { law: Marginal::Shares(shares), .. }) = &rounded.columns()[2].published else { panic!("shares") };
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let number = "kind = \"number\"\nlower = 0\nupper = 40\ncentre = 0\nscale = 1\nmean = 3\nsd = 2";
        let label = SCHEMA.replace("kind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\nshare = 0.2", number);
        assert_eq!(
            Schema::asking("died ~ .", &label).unwrap().label().published.as_ref().unwrap().law,
            Marginal::Moments { mean: 3.0, sd: 2.0 }
        );
        let classes = SCHEMA.replace(
            "kind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\nshare = 0.2",
            "kind = \"category\"\nvalues = [\"x\", \"y\"]\nshare = [0.2, 0.8]",
        );
        assert_eq!(Schema::asking("died ~ .", &classes).unwrap().label().published.as_ref().unwrap().law, Marginal::Shares(vec![0.2, 0.8]));
    }

    #[test]
    fn keys_that_contradict_themselves_name_the_column_and_what_to_write() {
        for (from, to, column, part) in [
            ("mean = 61.5", "mean = 6150", "age", "between `lower` and `upper`"),
            ("mean = 61.5", "mean = nan", "age", "between `lower` and `upper`"),
            ("sd = 14", "sd = 0", "age", "above 0 and at most"),
            ("sd = 14", "sd = 1000", "age", "above 0 and at most"),
            ("sd = 14", "", "age", "`mean` and `sd`, both"),
            ("sd = 14", "sd = \"14\"", "age", "published numbers"),
            ("mean = 61.5\nsd = 14", "share = 0.5", "age", "`mean` and `sd`"),
            ("share = 0.5", "share = 1.5", "male", "between 0 and 1"),
            ("share = 0.5", "share = [0.5, 0.5]", "male", "one number"),
            ("share = 0.5", "mean = 0.5\nsd = 0.5", "male", "one number"),
            ("[0.5, 0.3, 0.1]", "[0.5, 0.3]", "ward", "2 numbers for 3 values"),
            ("[0.5, 0.3, 0.1]", "[0.5, 0.3, 0.4]", "ward", "add up to 1.2"),
            ("[0.5, 0.3, 0.1]", "[0, 0, 0]", "ward", "more than 0"),
            ("[0.5, 0.3, 0.1]", "0.5", "ward", "one number a value"),
            ("source = \"census\"", "", "male", "need a `source`"),
            ("source = \"census\"", "source = \" \"", "male", "need a `source`"),
            ("share = 0.5\n", "", "male", "give them, or remove it"),
            ("share = 0.2", "share = [0.2, 0.8]", "died", "one number"),
            ("kind = \"boolean\"", "kind = \"ignored\"", "male", "not used"),
        ] {
            assert!(SCHEMA.contains(from), "{from}");
            let error = Schema::asking("died ~ .", &SCHEMA.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(&format!("`{column}`")), "{from} -> {to}: {error}");
        }
    }
}
