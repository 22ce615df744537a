//! `task.toml`, and how it becomes a resolved task.

use dp_pvi_accounting::{Delta, Epsilon, PrivacyUnit, Relation};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{
    Approximation, DesignSpec, ENGINE, EarlyEndSpec, FORMAT, PriorSpec, PrivacySpec, RawAggregation, ResolvedTask, ScheduleSpec, TaskError,
    Trust, UpdateSpec, WeightsSpec,
};
use crate::methods::{PVI_KEYS, Resolving, UpdateKind};
use dp_pvi_math::damping::Damping;
use dp_pvi_models::ModelFamily;
use dp_pvi_models::spec::TermPrior;
use dp_pvi_models::spec::check::{invalid, require};
use dp_pvi_models::typical;
use dp_pvi_schema::Schema;

/// Most parameters of a run of 20 rounds: each round has noise on all of them.
const FEW: u32 = 60;

/// Parameters up to which a posterior has a full covariance unless something else is said.
const LARGEST_USUAL: u32 = 256;

/// `task.toml` as written; every option that is absent gets the default that its field names. Options of one model are in `[model]`
/// beside its `family`, options of one update in `[pvi]` beside its `update`; an option of another model or update is an error.
///
/// ```toml
/// name = "lung-fed"                  # optional; the federation's name otherwise
///
/// [model]
/// outcome = "died"                   # what is predicted: a column of the schema; all others predict it. Or formula = "died ~ age + ward"
/// family = "logistic-regression"     # or "linear-regression" with noise_sd
/// approximation = "mean-field"       # or "full-covariance" (not with dp-optimisation, bcm, global-vi); the default for natural gradients and pvi
/// prior_scale = 2.5                  # of the effect of a typical difference
///
/// [schema]
/// file = "schema.toml"
///
/// [pvi]
/// schedule = "sequential"            # with sweeps; or "synchronous" with rounds; or "asynchronous" with sweeps and max_staleness
/// sweeps = 20
/// update = "dp-optimisation"         # or "pvi": exact local optimum, no protection
/// expected_sites = 10                # public guess; sets the default step precision and synchronous damping
///
/// [privacy]
/// unit = "record"                    # or "person", with a unit_column in the schema
/// adjacency = "replace-one"          # or "add-remove"
/// epsilon = 1.0                      # of the whole run at one site; absent only for update = "pvi"
/// delta = 1e-5
/// trust = "local"                    # or "aggregated", with the section below
/// max_units = 20000                  # public bound on the units of one site: bounds what a site that lies can add
///
/// [aggregation]                      # a second party adds the masks up: no one sees one site's sum
/// max_units = 5000                   # public bound on the units (or shards) of one site
/// dropouts = 1                       # sites that may be missing from a round
/// colluders = 1                      # sites that may work together with the server
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTask {
    /// Name for people. Default: the name that the context gives.
    pub name: Option<String>,
    /// Runs the task although its own forecast says that a constant predicts better. Default: such a task is refused.
    #[serde(default)]
    pub even_if_worthless: bool,
    /// Likelihood, prior and family.
    pub model: RawModel,
    /// Where the schema is.
    pub schema: RawSchema,
    /// Order and kind of work.
    pub pvi: RawPvi,
    /// Guarantee.
    pub privacy: RawPrivacy,
    /// Numbers of aggregated trust.
    pub aggregation: Option<RawAggregation>,
}

/// `[model]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct RawModel {
    /// Likelihood.
    pub family: ModelFamily,
    /// Default: `full-covariance` for regressions by natural gradients and `pvi` with up to 256 parameters, else `mean-field`.
    pub approximation: Option<Approximation>,
    /// Mean of every coefficient, in `prior_units`; of a formula's intercept only where these are those of entries. Default: 0.
    pub prior_mean: Option<f64>,
    /// Standard deviation of every coefficient, in `prior_units`. Default: 2.5 in typical units, 1 for logarithms of rates and hazards; 1 in those of entries.
    pub prior_scale: Option<f64>,
    /// Default: typical units for regressions by natural gradients and `pvi`.
    pub prior_units: Option<PriorUnits>,
    /// What is predicted and what rows are made of, as in `died ~ age + sex*ward`. As `outcome = "died"` it is `died ~ .`, with all other columns. Absent: of documents and images, and of
    /// families that predict nothing.
    pub formula: Option<String>,
    /// Names of all sites, where the formula has effects of sites.
    pub sites: Vec<String>,
    /// Number column with the records' weights, where a formula makes the rows. Default: every record counts once.
    pub weights: Option<String>,
    /// Priors of single terms of the formula.
    pub priors: Vec<TermPrior>,
    /// Options of the likelihood.
    pub options: toml::Table,
}

/// What `prior_mean` and `prior_scale` are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorUnits {
    /// Effects of a typical difference in the column, on the scale of the outcome; the intercept has a prior by what is published ([`typical`]).
    Typical,
    /// Coefficients of encoded entries.
    Encoded,
}

/// `[schema]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSchema {
    /// Path, relative to the task file. The caller reads it: this crate opens no file.
    pub file: String,
}

/// `[pvi]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct RawPvi {
    /// `sequential`, `synchronous` or `asynchronous`.
    pub schedule: ScheduleKind,
    /// Rounds (synchronous). Default of natural gradients: 20, or 10 of more than 60 coefficients; required of other updates.
    pub rounds: Option<Rounds>,
    /// Visits of every site (sequential, asynchronous). Default: 20.
    pub sweeps: Option<u32>,
    /// Rounds by which the posterior that a site starts from may be older than the round that its update enters (asynchronous). Default: 2.
    pub max_staleness: Option<u32>,
    /// ρ, or `{ start, end }`, `{ start, end, decay }`, `{ start, slowing }`, `{ offset, power }`. The default is the update's.
    pub damping: Option<Damping>,
    /// Public guess of the number of sites. Default: the one of the context.
    pub expected_sites: Option<u32>,
    /// Public guess of the number of units of a site, for `rounds = "auto"`. Default: the most that a site may declare, where the task says that.
    pub expected_units: Option<u64>,
    /// Updates leave at multiples of this after training. Default: 0, at once.
    pub release_tick_seconds: Option<u64>,
    /// `{ distance, rounds }`: the run ends when the posterior has moved by at most so many of its standard deviations in so many rounds. Default: it
    /// has all its rounds.
    pub end_early: Option<EarlyEndSpec>,
    /// What a site computes.
    pub update: UpdateKind,
    /// Options of the update: all other keys.
    #[serde(skip)]
    pub options: toml::Table,
}

/// A number of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "rounds must be a number, or \"auto\"")]
pub enum Rounds {
    /// So many.
    Number(u32),
    /// As many as end best by a forecast.
    #[serde(with = "auto")]
    Auto,
}

/// The word of [`Rounds::Auto`].
mod auto {
    use serde::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        Auto,
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
        Word::deserialize(deserializer).map(|Word::Auto| ())
    }
}

/// Names of the schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKind {
    /// One site after the other.
    Sequential,
    /// All sites every round.
    Synchronous,
    /// Every site at its own pace.
    Asynchronous,
}

/// `[privacy]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPrivacy {
    /// Whose data is protected.
    pub unit: PrivacyUnit,
    /// Neighbouring data sets.
    pub adjacency: Relation,
    /// ε of the whole run at one site; absent only for `update = "pvi"`.
    pub epsilon: Option<Epsilon>,
    /// δ.
    pub delta: Delta,
    /// Who adds the noise.
    pub trust: Trust,
    /// The same as `clip_norm` in `[pvi]`; only one of the two may be given.
    pub clip_norm: Option<f64>,
    /// Most units that one site may declare: a site that lies counts as at most so many records. Required of protected tasks under local trust; `[aggregation]` has its own.
    pub max_units: Option<u64>,
}

/// What a task takes from the federation's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolveContext<'a> {
    /// Name for people, where the task has none.
    pub name: &'a str,
    /// Deadline of a round (of a turn, when sequential).
    pub update_deadline_seconds: u64,
    /// Fewest sites of a round.
    pub min_sites: u32,
    /// Number of sites that are expected, at most: sets the default damping of a synchronous schedule.
    pub expected_sites: u32,
}

impl RawTask {
    /// Reads `task.toml`.
    ///
    /// # Errors
    /// Not TOML, an unknown key, or a value of the wrong kind; the message names line and key.
    pub fn parse(text: &str) -> Result<Self, TaskError> {
        toml::from_str(text).map_err(|e| TaskError::Invalid(e.to_string()))
    }

    /// Coefficients of columns that go together have correlations, without which neither their intervals nor their effects are known.
    fn usual_approximation(&self, model: &super::ModelSpec, schema: &Schema) -> Approximation {
        let keeps_correlations = matches!(self.pvi.update, UpdateKind::NaturalGradient | UpdateKind::Pvi) && model.rules().is_linear();
        if keeps_correlations && model.rules().parameters(schema.dimension()).count() <= LARGEST_USUAL {
            Approximation::FullCovariance
        } else {
            Approximation::MeanField
        }
    }

    /// Makes every number explicit: z by calibration, C, q, ρ of every visit, and the facts that follow from the schema's text.
    ///
    /// The default step precision of DP optimisation's preconditioned optimiser follows from z, public numbers only: F = 3·K·s/prior_scale,
    /// where s = √sites·(zC/q)/√(L·visits) is the noise that is left on the gradient of all data after all steps of the run, and
    /// K = η·(L − (tail − 1)/2)·Σρ, tail = ⌈averaging·L⌉, says how far all visits together move at precision F. The gain K/F is then a
    /// third of prior_scale/s, the gain at which a Wiener filter for coefficients of the prior's scale stops trusting a direction.
    ///
    /// # Errors
    /// An option that is missing, out of range, or does not belong to this combination; a schema that is none; a target ε that no
    /// noise reaches.
    pub fn resolve(&self, schema_text: &str, context: ResolveContext<'_>) -> Result<ResolvedTask, TaskError> {
        let model = self.model.family.resolve(&self.model.options)?;
        let design = self.design(schema_text, &model)?;
        require(
            design.is_some() || self.model.sites.is_empty(),
            "sites belongs to a formula with effects of sites: \"died ~ age + (1 | site)\"",
        )?;
        let named = |(number, site): (usize, &String)| !site.trim().is_empty() && !self.model.sites[..number].contains(site);
        require(self.model.sites.iter().enumerate().all(named), "[model] sites has a name twice, or one that is empty")?;
        require(design.is_some() || self.model.weights.is_none(), "weights belongs to a formula, which says what rows are made of")?;
        require(
            design.is_some() || self.model.priors.is_empty(),
            "[[model.priors]] are those of a formula's terms: write formula = \"…\" under [model]",
        )?;
        let (schema, design) = self.weighted(dp_pvi_models::spec::schema(schema_text, design.as_ref())?, design)?;
        let count = model.rules().parameters(schema.dimension()).count();
        let schedule = self.schedule(count)?;
        let (units, usual) = self.prior_units(&model)?;
        let prior = PriorSpec { mean: self.model.prior_mean.unwrap_or(0.0), scale: self.model.prior_scale.unwrap_or(usual) };
        let mut task = ResolvedTask {
            format: FORMAT,
            engine: ENGINE.to_owned(),
            name: self.name.clone().unwrap_or_else(|| context.name.to_owned()),
            approximation: self.model.approximation.unwrap_or_else(|| self.usual_approximation(&model, &schema)),
            prior,
            coefficients: match units {
                PriorUnits::Typical => typical::priors(&model, &schema, prior).unwrap_or_default(),
                PriorUnits::Encoded => Vec::new(),
            },
            schema: schema_text.to_owned(),
            design,
            features: schema.dimension(),
            dimension: count,
            model,
            feature_bound: schema.row_norm_bound(),
            max_nonzeros: schema.max_nonzeros(),
            schedule,
            damping: Vec::new(),
            update: UpdateSpec::Pvi {},
            privacy: PrivacySpec {
                unit: self.privacy.unit,
                relation: self.privacy.adjacency,
                epsilon: self.privacy.epsilon,
                delta: self.privacy.delta,
                trust: self.privacy.trust,
                // An update whose mechanism is over so many units says it, too.
                max_units: self.privacy.max_units.or_else(|| self.units_of_update()),
            },
            aggregation: None,
            update_deadline_seconds: context.update_deadline_seconds,
            min_sites: context.min_sites,
            expected_sites: self.pvi.expected_sites,
            release_tick_seconds: self.pvi.release_tick_seconds.unwrap_or(0),
            early_end: self.pvi.end_early,
            even_if_worthless: self.even_if_worthless,
            promise: super::Derived,
        };
        // Before anything is built or multiplied.
        task.check_bounds(&schema)?;
        task.check_model(&schema)?;
        let expected_sites = self.pvi.expected_sites.unwrap_or(context.expected_sites).max(1);
        task.aggregation = self.aggregation.map(|raw| raw.resolve(expected_sites)).transpose()?;
        let damping = self.pvi.damping.unwrap_or_else(|| self.pvi.update.default_damping(schedule, expected_sites, schema.max_nonzeros()));
        task.damping = damping.resolve(task.visits()).map_err(|e| TaskError::Invalid(e.to_string()))?;
        let update = self.pvi.update.resolve(&Resolving {
            task: task.setting(),
            options: &self.pvi.options,
            clip_norm: self.privacy.clip_norm,
            expected_sites,
            check: &|update| ResolvedTask { update: update.clone(), ..task.clone() }.check(),
        })?;
        Ok(ResolvedTask { update, ..task })
    }

    /// What the prior is in, and the usual scale there. Updates of the papers have the priors of the papers.
    fn prior_units(&self, model: &super::ModelSpec) -> Result<(PriorUnits, f64), TaskError> {
        let usual = typical::usual_scale(model).filter(|_| matches!(self.pvi.update, UpdateKind::NaturalGradient | UpdateKind::Pvi));
        match (self.model.prior_units, usual) {
            (None | Some(PriorUnits::Typical), Some(usual)) => Ok((PriorUnits::Typical, usual)),
            (Some(PriorUnits::Typical), None) => {
                invalid("prior_units = \"typical\" belongs to a regression by update = \"natural-gradient\" or \"pvi\": leave it out")
            }
            (None | Some(PriorUnits::Encoded), _) => Ok((PriorUnits::Encoded, 1.0)),
        }
    }

    /// What is predicted and what rows are made of: as it is written, or all columns where the family predicts nothing.
    fn design(&self, schema_text: &str, model: &super::ModelSpec) -> Result<Option<DesignSpec>, TaskError> {
        let of = |formula: &str| DesignSpec {
            priors: self.model.priors.clone(),
            without_intercept: !model.rules().has_intercept(),
            ..DesignSpec::of(formula, self.model.sites.clone())
        };
        let is_table = *Schema::parse(schema_text)?.content() == dp_pvi_schema::content::Content::Table;
        match &self.model.formula {
            Some(formula) => Ok(Some(of(formula))),
            None if !is_table => Ok(None),
            None if !model.rules().has_outcome() => Ok(Some(of("~ ."))),
            None => invalid(
                "what is predicted? Write outcome = \"died\" under [model], with the name of a column, or formula = \"died ~ age + ward\"",
            ),
        }
    }

    /// `max_units` of `[pvi]`, where the site adds the noise.
    fn units_of_update(&self) -> Option<u64> {
        let units = self.pvi.options.get("max_units")?.as_integer()?;
        u64::try_from(units).ok().filter(|_| self.privacy.trust == Trust::Local)
    }

    /// The schema whose records have the weights that the task names, and what says so.
    fn weighted(&self, schema: Schema, design: Option<DesignSpec>) -> Result<(Schema, Option<DesignSpec>), TaskError> {
        let (Some(column), Some(design)) = (&self.model.weights, design.clone()) else { return Ok((schema, design)) };
        let schema = schema.with_weights(column)?;
        let weights = Some(WeightsSpec { column: column.clone(), largest: schema.max_weight() });
        Ok((schema, Some(DesignSpec { weights, ..design })))
    }

    /// The same task with this number of rounds.
    #[must_use]
    pub fn with_rounds(&self, rounds: u32) -> Self {
        Self { pvi: RawPvi { rounds: Some(Rounds::Number(rounds)), ..self.pvi.clone() }, ..self.clone() }
    }

    /// Of a task with so many parameters.
    fn schedule(&self, parameters: u32) -> Result<ScheduleSpec, TaskError> {
        if self.pvi.max_staleness.is_some() && self.pvi.schedule != ScheduleKind::Asynchronous {
            return invalid("max_staleness belongs to schedule = \"asynchronous\"");
        }
        match (self.pvi.schedule, self.pvi.rounds, self.pvi.sweeps) {
            (ScheduleKind::Asynchronous, None, sweeps) => {
                Ok(ScheduleSpec::Asynchronous { sweeps: sweeps.unwrap_or(20), max_staleness: self.pvi.max_staleness.unwrap_or(2) })
            }
            (ScheduleKind::Asynchronous, Some(_), _) => invalid(
                "schedule = \"asynchronous\" counts the visits of a site (sweeps): how many rounds there are depends on who is fast",
            ),
            (ScheduleKind::Sequential, None, sweeps) => Ok(ScheduleSpec::Sequential { sweeps: sweeps.unwrap_or(20) }),
            (ScheduleKind::Synchronous, Some(Rounds::Number(rounds)), None) => Ok(ScheduleSpec::Synchronous { rounds }),
            (ScheduleKind::Synchronous, None, None) if self.pvi.update == UpdateKind::NaturalGradient => {
                Ok(ScheduleSpec::Synchronous { rounds: if parameters > FEW { 10 } else { 20 } })
            }
            (ScheduleKind::Synchronous, Some(Rounds::Auto), None) => {
                invalid("rounds = \"auto\" is made a number by `dp-pvi-server` and `dp-pvi-sim`: write one here")
            }
            (ScheduleKind::Sequential, Some(_), _) => {
                invalid("schedule = \"sequential\" counts sweeps, not rounds (rounds = sweeps × sites)")
            }
            (ScheduleKind::Synchronous, _, _) => {
                // A misspelt key stands among the update's options: it is named here, where its absence is noticed.
                let others: Vec<&str> = self.pvi.options.keys().map(String::as_str).collect();
                let others = if others.is_empty() { String::new() } else { format!(" (other keys of [pvi]: {})", others.join(", ")) };
                invalid(&format!("schedule = \"synchronous\" needs rounds, and no sweeps{others}"))
            }
        }
    }
}

impl RawModel {
    /// The keys of `[model]` that every likelihood has.
    pub const KEYS: &[&str] = dp_pvi_models::MODEL_KEYS;
}

impl RawPvi {
    /// The keys of `[pvi]` that every update has.
    pub const KEYS: &[&str] = PVI_KEYS;
}

/// The keys of `[model]` that every likelihood has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonModel {
    family: ModelFamily,
    approximation: Option<Approximation>,
    prior_mean: Option<f64>,
    prior_scale: Option<f64>,
    prior_units: Option<PriorUnits>,
    formula: Option<String>,
    outcome: Option<String>,
    #[serde(default)]
    sites: Vec<String>,
    weights: Option<String>,
    #[serde(default)]
    priors: Vec<TermPrior>,
}

impl TryFrom<toml::Table> for RawModel {
    type Error = String;

    fn try_from(table: toml::Table) -> Result<Self, String> {
        let (common, options) = split(table, Self::KEYS);
        let CommonModel { family, approximation, prior_mean, prior_scale, prior_units, formula, outcome, sites, weights, priors } =
            read(common)?;
        let formula = match (formula, outcome) {
            (Some(formula), Some(outcome)) => Some(with_outcome(&formula, &outcome)?),
            (formula, None) => formula,
            (None, Some(outcome)) => Some(with_outcome("~ .", &outcome)?),
        };
        Ok(Self { family, approximation, prior_mean, prior_scale, prior_units, formula, sites, weights, priors, options })
    }
}

impl<'de> Deserialize<'de> for RawPvi {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        let (common, options) = split(toml::Table::deserialize(document)?, Self::KEYS);
        // The derived function, which knows the keys of all updates.
        let read = Self::deserialize(common).map_err(|e| D::Error::custom(e.to_string().trim_end()))?;
        Ok(Self { options, ..read })
    }
}

/// The formula, with this outcome where it names none; of a survival time the outcome is `Surv(…)`.
fn with_outcome(formula: &str, outcome: &str) -> Result<String, String> {
    let outcome = match outcome.trim() {
        "" => return Err("`outcome` is empty: name the column that is predicted".into()),
        text if text.contains('~') => return Err("`outcome` is a column's name: a text with `~` is a formula, `formula = …`".into()),
        text if text.starts_with("Surv(") || text.starts_with('`') => text.to_owned(),
        name => dp_pvi_schema::formula::in_formula(name),
    };
    let Some((before, _)) = formula.split_once('~') else { return Ok(formula.to_owned()) };
    match before.trim() {
        "" => Ok(format!("{outcome} {}", formula.trim())),
        named if named == outcome => Ok(formula.to_owned()),
        named => Err(format!("`outcome` says {outcome}, and the formula {named}: what is predicted stands in one place")),
    }
}

/// The entries with these keys, and the others.
fn split(table: toml::Table, keys: &[&str]) -> (toml::Table, toml::Table) {
    table.into_iter().partition(|(key, _)| keys.contains(&key.as_str()))
}

fn read<T: serde::de::DeserializeOwned>(table: toml::Table) -> Result<T, String> {
    table.try_into().map_err(|e: toml::de::Error| e.to_string().trim_end().to_owned())
}
