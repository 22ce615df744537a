//! `posterior.json`: what a run leaves behind, complete enough to predict from and to check.
//!
//! There is one posterior: the noise-aware one, where the update has one. The variational posterior, as it came out of the run, then is beside
//! it as `plain`. `deploy/guide/src/posterior.md` describes every field.

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_privacy::ledger::{LedgerHead, Row};
use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};

use crate::agreement::Agreement;
use crate::certificate::{self, Certified, Checked, MismatchError};
use crate::convergence::Convergence;
use crate::divided::{Divided, Noise, Without};
use dp_pvi_math::scales::ScaleSummary;
use dp_pvi_models::effects;
use dp_pvi_models::effects::{Curve, Effect, ObservationScale, Scale};
use dp_pvi_posterior::methods::noise_aware::Absent;
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::{ResolvedTask, TaskError};
use dp_pvi_protocol::metrics::HeldOutMetrics;
use dp_pvi_protocol::origin::Origin;
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_protocol::statement::PrivacyStatement;
use dp_pvi_protocol::summary::{Coefficient, coefficients};

/// Version of the file's form.
const FORMAT: u32 = 2;

/// The exported posterior.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PosteriorDocument {
    /// Version of this form; 2.
    pub format: u32,
    /// SHA-256 of the resolved task.
    pub task_hash: String,
    /// Number of the run of that task.
    pub run: u32,
    /// Server commits that the posterior contains.
    pub rounds: u32,
    /// Approximating family.
    pub family: Family,
    /// Marginals by name.
    pub coefficients: Vec<Coefficient>,
    /// Natural parameters: [h; Λ], or [h; svec Λ].
    pub natural_parameters: Vec<f64>,
    /// Covariance of the coefficients in their order, row by row; absent for a mean field, whose coefficients are independent, and above 256
    /// coefficients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covariance: Option<Vec<Vec<f64>>>,
    /// Their correlation in the same form, to six decimals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Vec<Vec<f64>>>,
    /// What the coefficients say in the units that people use; none where they are no effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Scales that coefficients share, with the effects of sites or levels; none where the formula has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<Scale>,
    /// What the formula's bent terms add to the linear predictor, over the range of their column; none where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
    /// The scale of an observation's noise, where the run learned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation_scale: Option<ObservationScale>,
    /// The standard deviation of an observation's noise, where the run learned one number and not its distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation_sd: Option<f64>,
    /// What the intervals contain.
    pub intervals: Intervals,
    /// The variational posterior as it came out of the run, where the noise-aware one stands above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain: Option<Plain>,
    /// Whether the run converged, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<Convergence>,
    /// Signal-to-noise ratio of the released precision, where there is a noise-aware posterior; 1 is noise alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_to_noise: Option<f64>,
    /// Whether the sites agree, or why that was not tested. Only of a whole run's posterior.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<Agreement>,
    /// The site that was divided out of this posterior, and what that means. Absent for the posterior of a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Without>,
    /// Why there is no posterior, where the run left none: what it summed is no distribution. Coefficients and natural parameters are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// One statement for every site.
    pub privacy: Vec<PrivacyStatement>,
    /// The certificate of the ε that every statement claims, or why there is none: [`Self::with_certificates`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certified>,
    /// The same for the fallback ε of aggregated trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_certificate: Option<Certified>,
    /// Held-out metrics, oldest first.
    pub evaluations: Vec<Evaluation>,
    /// The resolved task, its canonical bytes as text.
    pub task: String,
}

/// What intervals contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Whether the noise that protects the records is in them, as far as there is any.
    pub complete: bool,
    /// What is in them and what is not, or why the noise is not.
    pub why: String,
}

impl Intervals {
    fn absent(absent: Absent) -> Self {
        if absent.is_complete() {
            return Self { complete: true, why: format!("{absent}.") };
        }
        if absent == Absent::Unsettled {
            return Self {
                complete: false,
                why: format!(
                    "No noise was added, but the run had not settled: {absent}. The intervals are not those of the records. Run it with more rounds."
                ),
            };
        }
        Self {
            complete: false,
            why: format!("The noise that protects the records is not in the intervals, which are too narrow: {absent}."),
        }
    }

    fn aware(family: Family) -> Self {
        let independent = match family {
            Family::DiagonalGaussian { .. } => {
                " A mean field releases no correlations: where numbers are correlated, intervals can be far too narrow."
            }
            Family::FullGaussian { .. } => "",
        };
        Self {
            complete: true,
            why: format!("The intervals contain the noise that protects the records (noise-aware posterior).{independent}"),
        }
    }
}

/// The variational posterior as it came out of the run, without the noise, in the document's family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plain {
    /// Marginals by name.
    pub coefficients: Vec<Coefficient>,
    /// Natural parameters.
    pub natural_parameters: Vec<f64>,
}

/// Which of a document's posteriors is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Which {
    /// The posterior of the document.
    #[default]
    Posterior,
    /// The variational one as it came out of the run.
    Plain,
}

/// One report of an evaluator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Who evaluated.
    pub evaluator: ClientId,
    /// Number of rounds that the evaluated posterior contains (0 = prior).
    pub round: u32,
    /// What was found.
    pub metrics: HeldOutMetrics,
}

/// Why a text is not a posterior of this version.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not this form.
    #[error("this is not a posterior.json ({0}): export it again")]
    Unreadable(String),
    /// The form of another version.
    #[error(
        "this posterior.json has format {0}, and this version of dp-pvi reads format {FORMAT}: another version wrote it; export it again"
    )]
    Version(u32),
    /// A site's own posterior, which says so.
    #[error(
        "this is a site's personal posterior, made from its records without noise, and no posterior.json: it must not leave that site. If you are there,          `dp-pvi-client predict --personal` reads it; if not, delete it and tell them"
    )]
    Personal,
    /// Parts that do not belong together.
    #[error("posterior.json contradicts itself: {0}; export it again")]
    Inconsistent(&'static str),
    /// The parameters are no distribution.
    #[error("posterior.json holds no distribution ({0}): export it again")]
    Parameters(#[from] InvalidParameters),
    /// The task inside.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl PosteriorDocument {
    /// Puts the result of a run together; `state` is the run's last one.
    ///
    /// # Errors
    /// Its head is not a distribution of the task's family.
    pub fn new(
        task: &ResolvedTask,
        run: u32,
        rounds: u32,
        state: &[f64],
        privacy: Vec<PrivacyStatement>,
        evaluations: Vec<Evaluation>,
    ) -> Result<Self, DocumentError> {
        let family = task.family();
        let natural_parameters = task.posterior(state).to_vec();
        let posterior = Gaussian::from_natural(family, natural_parameters.clone())?;
        let read = Read::of(task, &posterior, &[])?;
        Ok(Self {
            format: FORMAT,
            task_hash: task.hash().to_string(),
            run,
            rounds,
            family,
            coefficients: read.coefficients,
            natural_parameters,
            covariance: read.covariance,
            correlation: read.correlation,
            effects: read.effects,
            scales: read.scales,
            curves: read.curves,
            observation_scale: task.scale_at(state).map(ObservationScale::new),
            observation_sd: task.learned_noise(state).filter(|_| task.scale_at(state).is_none()),
            intervals: Intervals::absent(noise_aware::is_known(task).err().unwrap_or(Absent::NoRound)),
            plain: None,
            convergence: None,
            signal_to_noise: None,
            agreement: None,
            without: None,
            problem: None,
            privacy,
            certificate: None,
            fallback_certificate: None,
            evaluations,
            task: String::from_utf8_lossy(&task.to_bytes()).into_owned(),
        })
    }

    /// What is left to say of a run whose state is no distribution: who took part, what it cost, and why there is nothing to predict from.
    #[must_use]
    pub fn without_posterior(
        task: &ResolvedTask,
        run: u32,
        rounds: u32,
        problem: &InvalidParameters,
        privacy: Vec<PrivacyStatement>,
        evaluations: Vec<Evaluation>,
    ) -> Self {
        Self {
            format: FORMAT,
            task_hash: task.hash().to_string(),
            run,
            rounds,
            family: task.family(),
            coefficients: Vec::new(),
            natural_parameters: Vec::new(),
            covariance: None,
            correlation: None,
            effects: Vec::new(),
            scales: Vec::new(),
            curves: Vec::new(),
            observation_scale: None,
            observation_sd: None,
            intervals: Intervals::absent(Absent::Diverged),
            plain: None,
            convergence: None,
            signal_to_noise: None,
            agreement: None,
            without: None,
            problem: Some(format!("the run left no distribution ({problem}): its posterior is not finite, or has no variance")),
            privacy,
            certificate: None,
            fallback_certificate: None,
            evaluations,
            task: String::from_utf8_lossy(&task.to_bytes()).into_owned(),
        }
    }

    /// Whether no correlations were released.
    #[must_use]
    pub fn is_mean_field(&self) -> bool {
        matches!(self.family, Family::DiagonalGaussian { .. })
    }

    /// The document of the noise-aware posterior, or with the reason why there is none. The statements then say so.
    ///
    /// # Errors
    /// Natural parameters that are not a distribution of the task's family.
    pub fn with_noise_aware(
        mut self,
        aware: Result<dp_pvi_posterior::methods::noise_aware::Posterior, Absent>,
    ) -> Result<Self, DocumentError> {
        match aware {
            Ok(dp_pvi_posterior::methods::noise_aware::Posterior {
                natural_parameters,
                signal_to_noise,
                noise_share,
                scales,
                precision,
            }) => {
                let posterior = Gaussian::from_natural(self.family, natural_parameters.clone())?;
                let read = Read::of(&self.task()?, &posterior, &scales)?;
                self.convergence = Some(Convergence::new(&self.coefficients, &read.coefficients, noise_share));
                self.plain = Some(Plain {
                    coefficients: std::mem::replace(&mut self.coefficients, read.coefficients),
                    natural_parameters: std::mem::replace(&mut self.natural_parameters, natural_parameters),
                });
                (self.covariance, self.correlation, self.effects) = (read.covariance, read.correlation, read.effects);
                (self.scales, self.curves) = (read.scales, read.curves);
                self.observation_scale = precision.map(ObservationScale::new).or(self.observation_scale);
                self.signal_to_noise = Some(signal_to_noise);
                self.intervals = Intervals::aware(self.family);
            }
            Err(absent) => self.intervals = Intervals::absent(absent),
        }
        self.privacy.iter_mut().for_each(|statement| statement.intervals_are(&self.intervals.why));
        Ok(self)
    }

    /// The posterior of a run without one of its sites; `whole` is that of all. It has the run's statements of privacy, since charges stay, and no evaluations: no one
    /// evaluated it. Whether the run converged is said as it is known of the whole run.
    ///
    /// # Errors
    /// Natural parameters that are not a distribution of the task's family.
    pub fn without_site(
        task: &ResolvedTask,
        whole: &Self,
        divided: &Divided,
        site: ClientId,
        privacy: Vec<PrivacyStatement>,
    ) -> Result<Self, DocumentError> {
        let mut document = Self::new(task, whole.run, whole.rounds, &divided.natural_parameters, privacy, Vec::new())?;
        match divided.noise {
            Noise::Contained { signal_to_noise } => {
                document.signal_to_noise = Some(signal_to_noise);
                document.intervals = Intervals::aware(document.family);
                document.scales = Read::of(task, &document.posterior()?, &divided.scales)?.scales;
            }
            // A run without noise that had not settled has not settled without a site either.
            Noise::Left(Absent::NoNoise) => document.intervals = whole.intervals.clone(),
            Noise::Left(absent) => document.intervals = Intervals::absent(absent),
        }
        if let Some(plain) = &divided.plain {
            let posterior = Gaussian::from_natural(document.family, plain.clone())?;
            let coefficients = coefficients(&task.parameter_names()?, posterior.standard());
            document.convergence = Some(Convergence::new(&coefficients, &document.coefficients, None));
            document.plain = Some(Plain { coefficients, natural_parameters: plain.clone() });
        }
        document.privacy.iter_mut().for_each(|statement| statement.intervals_are(&document.intervals.why));
        document.without = Some(Without::new(site, divided.raised, whole.arrival(task)));
        Ok(document)
    }

    /// Whether this run converged, or why there is no verdict, in a sentence.
    fn arrival(&self, task: &ResolvedTask) -> String {
        let names = self.coefficients.iter().map(|coefficient| coefficient.name.as_str());
        match &self.convergence {
            Some(convergence) => format!("Of the whole run: {}", convergence.sentence(names)),
            None if task.update.is_private() || !noise_aware::states_tell(task) => {
                format!("There is no verdict on whether the whole run converged. {}", self.intervals.why)
            }
            None if self.intervals.complete => {
                "The whole run had settled: its last visit moved no mean by more than a tenth of a standard deviation.".into()
            }
            None => format!("Of the whole run: {}", self.intervals.why),
        }
    }

    /// The document with what was found of the sites.
    #[must_use]
    pub fn with_agreement(mut self, agreement: Agreement) -> Self {
        self.agreement = Some(agreement);
        self
    }

    /// The document with certificates of what its statements claim, or with the reasons why there are none.
    ///
    /// # Errors
    /// The task, or an ε that is none.
    pub fn with_certificates(mut self) -> Result<Self, MismatchError> {
        // All sites make the same claim.
        let made = certificate::of_run(&self.task()?, self.run, self.privacy.first())?;
        for statement in &mut self.privacy {
            statement.raise_to(made.proved.0, made.proved.1);
        }
        (self.certificate, self.fallback_certificate) = (Some(made.joint), made.fallback);
        Ok(self)
    }

    /// Checks the certificates with the verifier, which shares no code with the accountant, and compares them with what the ledger of a site charged for the
    /// run: run, task, events and ε.
    ///
    /// # Errors
    /// Anything that is not the same everywhere, or not proved.
    pub fn check_certificates(&self, site: &ClientId, rows: &[(Row, Hash)]) -> Result<Checked, MismatchError> {
        let statement = self.privacy.iter().find(|statement| statement.site == *site);
        let task = self.task()?;
        match statement {
            Some(statement) => certificate::check((&task, self.run), statement, (&self.certificate, &self.fallback_certificate), rows),
            None => Err(certificate::unstated((&task, self.run), site, rows)),
        }
    }

    /// The head of a site's ledger that the site signed with its last update of the run, if this key did.
    #[must_use]
    pub fn witnessed(&self, site: &ClientId, key: &VerifyingKey) -> Option<LedgerHead> {
        let run = RunId { task: self.task_hash.parse().ok()?, number: self.run };
        self.privacy.iter().find(|statement| statement.site == *site)?.witness.as_ref()?.head(site, &run, key)
    }

    /// Compares where this site's rows come from by its statement with what the site says itself.
    ///
    /// # Errors
    /// [`MismatchError::OtherRows`].
    pub fn check_rows(&self, site: &ClientId, own: &Origin) -> Result<(), MismatchError> {
        let other = self.privacy.iter().find(|statement| statement.site == *site && statement.rows != *own);
        other.map_or(Ok(()), |other| Err(MismatchError::OtherRows { stated: other.rows.to_string(), own: own.to_string() }))
    }

    /// The file's text.
    ///
    /// # Panics
    /// Never: the document is plain data.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and enums: serialisation into memory cannot fail.
        serde_json::to_string_pretty(self).expect("a posterior serialises")
    }

    /// Reads a file's text and checks that its parts belong together.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        let unreadable = |e: serde_json::Error| DocumentError::Unreadable(e.to_string());
        if serde_json::from_str::<Marked>(text).is_ok() {
            return Err(DocumentError::Personal);
        }
        let Format { format } = serde_json::from_str(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(DocumentError::Version(format));
        }
        let document: Self = serde_json::from_str(text).map_err(unreadable)?;
        let task = document.task()?;
        if task.hash().to_string() != document.task_hash {
            return Err(DocumentError::Inconsistent("the task is not the one that task_hash names"));
        }
        if task.family() != document.family {
            return Err(DocumentError::Inconsistent("the family is not the task's"));
        }
        if document.agreement.as_ref().is_some_and(|agreement| !agreement.is_consistent()) {
            return Err(DocumentError::Inconsistent("the verdicts on the sites are not those of their statistics"));
        }
        if document.privacy.windows(2).any(|two| two[0].site >= two[1].site) {
            return Err(DocumentError::Inconsistent(
                "a site has two statements of privacy, or they are not in the order of the sites' names",
            ));
        }
        if let Some(without) = &document.without
            && !document.privacy.iter().any(|statement| statement.site == without.site)
        {
            return Err(DocumentError::Inconsistent("the site that was divided out has no statement of privacy in it"));
        }
        if document.problem.is_some() {
            let empty = document.coefficients.is_empty() && document.natural_parameters.is_empty() && document.plain.is_none();
            return if empty { Ok(document) } else { Err(DocumentError::Inconsistent("it has a posterior and says that it has none")) };
        }
        document.check(&task)?;
        Ok(document)
    }

    /// Compares what is stated with what follows from the natural parameters.
    fn check(&self, task: &ResolvedTask) -> Result<(), DocumentError> {
        let posterior = self.posterior()?;
        let mut read = Read::of(task, &posterior, &[])?;
        if self.signal_to_noise.is_some() && self.scales.len() == read.scales.len() {
            read.scales = read.scales.into_iter().zip(&self.scales).map(|(scale, stated)| scale.with_tau_of(stated)).collect();
        }
        let stated = |stated: &[Coefficient], expected: &[Coefficient]| {
            let same = expected.len() == stated.len() && expected.iter().zip(stated).all(|(a, b)| a.agrees(b));
            let problem = "the coefficients are not those of the natural parameters";
            if same { Ok(()) } else { Err(DocumentError::Inconsistent(problem)) }
        };
        stated(&self.coefficients, &read.coefficients)?;
        if !matrices::agree(&self.covariance, &read.covariance, matrices::ROUNDING) {
            return Err(DocumentError::Inconsistent("the covariance is not that of the natural parameters"));
        }
        if !matrices::agree(&self.correlation, &read.correlation, matrices::SIX_DECIMALS) {
            return Err(DocumentError::Inconsistent("the correlation is not that of the natural parameters"));
        }
        if !effects::agree(&self.effects, &task.model, &task.parsed_schema()?, posterior.standard()) {
            return Err(DocumentError::Inconsistent("the effects are not those of the natural parameters"));
        }
        if self.scales.len() != read.scales.len() || !self.scales.iter().zip(&read.scales).all(|(a, b)| a.agrees(b)) {
            return Err(DocumentError::Inconsistent("the scales are not those of the natural parameters"));
        }
        if self.curves.len() != read.curves.len() || !self.curves.iter().zip(&read.curves).all(|(a, b)| a.agrees(b)) {
            return Err(DocumentError::Inconsistent("the curves are not those of the natural parameters"));
        }
        let learned = task.model.rules().learned_scale().is_some();
        if self.observation_scale.is_some() != learned || !self.observation_scale.is_none_or(|scale| scale.is_consistent()) {
            return Err(DocumentError::Inconsistent("the scale of the observations is not that of its shape and rate"));
        }
        if self.observation_sd.is_some_and(|sd| !(sd > 0.0 && sd.is_finite())) {
            return Err(DocumentError::Inconsistent("the standard deviation of an observation's noise is no positive number"));
        }
        if let Some(plain) = &self.plain {
            let posterior = Gaussian::from_natural(self.family, plain.natural_parameters.clone())?;
            stated(&plain.coefficients, &coefficients(&task.parameter_names()?, posterior.standard()))?;
        }
        let compared = match (&self.plain, &self.convergence) {
            (Some(plain), Some(convergence)) => convergence.compares(&plain.coefficients, &self.coefficients),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !compared {
            return Err(DocumentError::Inconsistent("convergence is not the comparison of its two posteriors"));
        }
        Ok(())
    }

    /// The resolved task.
    ///
    /// # Errors
    /// The text is not a resolved task of this version.
    pub fn task(&self) -> Result<ResolvedTask, TaskError> {
        ResolvedTask::from_bytes(self.task.as_bytes())
    }

    /// The task's hash.
    ///
    /// # Errors
    /// Not 64 hexadecimal digits.
    pub fn task_hash(&self) -> Result<Hash, DocumentError> {
        self.task_hash.parse().map_err(|_| DocumentError::Inconsistent("task_hash is no SHA-256 digest"))
    }

    /// The posterior.
    ///
    /// # Errors
    /// The natural parameters are no distribution.
    pub fn posterior(&self) -> Result<Gaussian, InvalidParameters> {
        Gaussian::from_natural(self.family, self.natural_parameters.clone())
    }

    /// What predicts new rows.
    ///
    /// # Errors
    /// The task or the natural parameters are invalid.
    pub fn predictor(&self) -> Result<Predictor, DocumentError> {
        self.predictor_with(Which::Posterior)
    }

    /// What predicts new rows from one of the posteriors. Where the plain one is the only one, it is both.
    ///
    /// # Errors
    /// The task or the natural parameters are invalid.
    pub fn predictor_with(&self, which: Which) -> Result<Predictor, DocumentError> {
        let natural = match (which, &self.plain) {
            (Which::Plain, Some(plain)) => &plain.natural_parameters,
            (Which::Posterior, _) | (Which::Plain, None) => &self.natural_parameters,
        };
        let scale = self.observation_scale.map(|scale| scale.estimate);
        Ok(Predictor::with_noise(&self.task()?.model_with(scale), self.family, natural, self.observation_sd)?)
    }
}

/// What a document says of its posterior.
struct Read {
    coefficients: Vec<Coefficient>,
    covariance: Option<Vec<Vec<f64>>>,
    correlation: Option<Vec<Vec<f64>>>,
    effects: Vec<Effect>,
    scales: Vec<Scale>,
    curves: Vec<Curve>,
}

impl Read {
    fn of(task: &ResolvedTask, posterior: &Gaussian, spreads: &[Option<ScaleSummary>]) -> Result<Self, TaskError> {
        let (names, standard) = (task.parameter_names()?, posterior.standard());
        let (covariance, schema) = (matrices::covariance(standard, names.len()), task.parsed_schema()?);
        Ok(Self {
            scales: effects::scales(&task.model, &task.setting().priors(), &schema, &names, standard, spreads),
            curves: effects::curves(&task.model, &schema, standard),
            coefficients: coefficients(&names, standard),
            correlation: covariance.as_deref().map(matrices::correlation),
            covariance,
            effects: effects::effects(&task.model, &schema, standard),
        })
    }
}

/// What the file of a site's personal posterior has, and no posterior.json.
#[derive(Deserialize)]
struct Marked {
    #[serde(rename = "private")]
    _private: String,
}

/// What says which form it is.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

mod matrices;
#[cfg(test)]
mod tests;
