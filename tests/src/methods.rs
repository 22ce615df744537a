//! Every method on small data: the models and updates of the [catalogue](dp_pvi_catalogue), which pairs run over processes, and records that each model learns from.

use std::fmt::Write;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_catalogue::{Records as Learned, Terms};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, TaskError};

pub use dp_pvi_catalogue::{MODELS, Model, Named, UPDATES, Update, model, update};

use crate::federation::Party;
use crate::regression::{Likelihood, Records};

/// Units of a site.
const UNITS: u32 = 60;

/// What a model learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Two numbers and a class.
    Classes,
    /// Two numbers and one of three classes, which follows from them.
    Wards,
    /// Two numbers, a time and whether it ended with an event.
    Times,
    /// Two numbers and a count, which is a number too.
    Counts,
    /// Two numbers and a number above 0.
    Positive,
    /// Words of documents.
    Documents,
    /// Binary images.
    Images,
}

/// Who adds the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Every site.
    Local,
    /// So many sites together.
    Aggregated(usize),
}

/// The updates that a model is tried with under local trust.
#[must_use]
pub fn tried(model: &Model) -> Vec<&'static Update> {
    UPDATES.iter().filter(|update| update.run.has(model, update)).collect()
}

/// The same under aggregated trust.
#[must_use]
pub fn tried_aggregated(model: &Model) -> Vec<&'static Update> {
    UPDATES.iter().filter(|update| update.run.aggregated.contains(&model.name)).collect()
}

/// `task.toml`.
#[must_use]
pub fn task(model: &Model, update: &Update, trust: Trust) -> String {
    let head = format!("name = \"{} with {}\"\neven_if_worthless = true\n", update.name, model.name);
    let aggregation = match trust {
        Trust::Local => None,
        Trust::Aggregated(sites) => Some(format!("sites = {sites}\ncolluders = 1\nmax_rounding_loss = 1.0\n")),
    };
    let terms = Terms {
        head: &head,
        relation: Relation::ReplaceOne,
        aggregation: aggregation.as_deref(),
        max_units: UNITS,
        // Of two sites.
        units: 2 * UNITS,
        epsilon: 2.0,
    };
    dp_pvi_catalogue::task(model, update, &terms)
}

/// Whether, and as what, the pair is a task.
///
/// # Errors
/// It is none.
pub fn resolve(model: &Model, update: &Update, trust: Trust) -> Result<ResolvedTask, TaskError> {
    let context = ResolveContext { name: "methods", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
    RawTask::parse(&task(model, update, trust))?.resolve(&Data::of(model).schema(), context)
}

/// Sites `site-1` … with records for the model, and ledgers for the update.
#[must_use]
pub fn sites(model: &Model, update: &Update, number: usize) -> Vec<Party> {
    let unit = if update.unit == PrivacyUnit::Site { PrivacyUnit::Site } else { PrivacyUnit::Record };
    let units = UNITS as usize;
    let site = |m: usize| Party::site_of(&format!("site-{}", m + 1), Data::of(model).file(units, m * units), UNITS.into());
    (0..number).map(|m| site(m).protecting(unit)).collect()
}

impl Data {
    /// What a model learns from.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        match model.records {
            Learned::Classes => Self::Classes,
            Learned::Several | Learned::Ordered => Self::Wards,
            Learned::Times => Self::Times,
            Learned::Numbers | Learned::Points => Self::Counts,
            Learned::Positive => Self::Positive,
            Learned::Documents => Self::Documents,
            Learned::Images => Self::Images,
        }
    }

    /// `schema.toml`.
    #[must_use]
    pub fn schema(self) -> String {
        let label = match self {
            Self::Times => {
                "kind = \"boolean\"\n[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0.5\nupper = 10\ncentre = 0\nscale = 1\n"
            }
            Self::Documents => {
                return "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 8\ndocument_length = 20\n".into();
            }
            Self::Images => return "kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 4\nthreshold = 63\n".into(),
            Self::Classes => "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n",
            Self::Wards => "kind = \"category\"\nvalues = [\"home\", \"ward\", \"intensive, care\"]\n",
            Self::Counts => "kind = \"number\"\nlower = 0\nupper = 10\ncentre = 0\nscale = 1\n",
            Self::Positive => "kind = \"number\"\nlower = 0.5\nupper = 10\ncentre = 0\nscale = 1\n",
        };
        let column = |j| format!("[[columns]]\nname = \"x{j}\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n");
        format!("[[columns]]\nname = \"y\"\n{label}{}{}", column(0), column(1))
    }

    /// A data file of so many units; `offset` tells files apart.
    #[must_use]
    pub fn file(self, units: usize, offset: usize) -> String {
        let mut records = Records::generated(units, 2, offset);
        match self {
            Self::Classes => records.csv(Likelihood::Logistic),
            Self::Wards => {
                let mut text = "x0,x1,y\n".to_owned();
                for x in &records.x {
                    let ward = if x[0] < -0.33 {
                        "home"
                    } else if x[0] + x[1] < 0.5 {
                        "ward"
                    } else {
                        "\"intensive, care\""
                    };
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{:?},{:?},{ward}", x[0], x[1]);
                }
                text
            }
            Self::Times => {
                let mut text = "x0,x1,t,y\n".to_owned();
                for (x, y) in records.x.iter().zip(&records.y) {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{:?},{:?},{:?},{}", x[0], x[1], 2.5 * (x[0] + 1.3), u8::from(*y > 0.5));
                }
                text
            }
            Self::Counts | Self::Positive => {
                for (x, y) in records.x.iter().zip(&mut records.y) {
                    *y += (2.0 * (x[0] + 1.0)).floor();
                }
                records.csv(Likelihood::Linear { noise_sd: 1.0 })
            }
            Self::Documents => documents(&records),
            Self::Images => images(&records),
        }
    }
}

/// UCI's docword format: a class is a topic of four words of the eight.
fn documents(records: &Records) -> String {
    let mut lines = String::new();
    let mut entries = 0;
    for (document, (x, y)) in records.x.iter().zip(&records.y).enumerate() {
        let topic = if *y > 0.5 { 5 } else { 1 };
        for (word, x) in x.iter().enumerate() {
            let count = 1 + u8::from(*x > 0.0);
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{} {} {count}\n{} {} 2", document + 1, topic + 2 * word, document + 1, topic + 2 * word + 1);
            entries += 2;
        }
    }
    format!("{}\n8\n{entries}\n{lines}", records.x.len())
}

/// IDX: every byte is below 128, so that the file is text as well; a class is the half of the twelve pixels that is on.
fn images(records: &Records) -> String {
    let count = u8::try_from(records.x.len()).ok().filter(|count| *count < 128).expect("few images");
    let mut bytes = vec![0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 3];
    for (x, y) in records.x.iter().zip(&records.y) {
        bytes.extend((0..12_u8).map(|pixel| {
            let class = (pixel < 6) == (*y > 0.5);
            let flipped = (x[0] > 0.0 && pixel % 6 == 0) || (x[1] > 0.0 && pixel % 6 == 1);
            if class == flipped { 0 } else { 127 }
        }));
    }
    String::from_utf8(bytes).expect("all bytes are below 128")
}
