//! A model as a task holds it: a name and options, of a module that this file does not know.

use std::any::Any;
use std::fmt::{Debug, Display, Formatter};
use std::sync::Arc;

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::registry::Named;
use crate::spec::TaskError;
use crate::spec::check::settings;
use crate::{MODELS, ModelRules};

/// The keys of `[model]` that every family has.
pub const MODEL_KEYS: &[&str] =
    &["family", "approximation", "prior_mean", "prior_scale", "prior_units", "formula", "outcome", "sites", "weights", "priors"];

/// A model: its options in a resolved task, where every number is explicit, and what they say by [`ModelRules`].
///
/// In a document they are beside `family`, in the order in which the type's `Serialize` writes them. The type refuses keys that it does not know
/// (`#[serde(deny_unknown_fields)]`).
pub trait ModelOptions: ModelRules + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in `task.toml` and in a document.
    const NAME: &'static str;

    /// What it is for, in half a line.
    const HELP: &'static str;

    /// What a person writes beside `family` in `task.toml`: the options, of which those with a default may be missing. Where there is no default, the
    /// options themselves.
    type Raw: DeserializeOwned;

    /// The options with every number explicit.
    ///
    /// # Errors
    /// An option without a default is missing.
    fn explicit(written: Self::Raw) -> Result<Self, TaskError>;
}

/// A likelihood with its options.
#[derive(Clone)]
pub struct ModelSpec(Arc<dyn Erased>);

/// Options of any type.
trait Erased: ModelRules + Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn rules(&self) -> &dyn ModelRules;
    fn any(&self) -> &dyn Any;
    fn is(&self, other: &dyn Any) -> bool;
    fn fields(&self) -> &dyn erased_serde::Serialize;
}

impl<T: ModelOptions> Erased for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn rules(&self) -> &dyn ModelRules {
        self
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn is(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn fields(&self) -> &dyn erased_serde::Serialize {
        self
    }
}

impl<T: ModelOptions> From<T> for ModelSpec {
    fn from(options: T) -> Self {
        Self(Arc::new(options))
    }
}

impl ModelSpec {
    /// The model's name in a task.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// What the model says about itself.
    #[must_use]
    pub fn rules(&self) -> &dyn ModelRules {
        self.0.rules()
    }

    /// The options, if they are of this type. For the private half of a model that sums records by itself; everyone else asks [`Self::rules`].
    #[must_use]
    pub fn options<T: ModelOptions>(&self) -> Option<&T> {
        self.0.any().downcast_ref()
    }

    /// Means at which the first fit over rows of `features` columns starts, where not at the prior's: the same for everyone.
    #[must_use]
    pub fn fit_start(&self, features: u32) -> Option<Vec<f64>> {
        self.rules().fit_start(features)
    }
}

impl PartialEq for ModelSpec {
    fn eq(&self, other: &Self) -> bool {
        self.0.is(other.0.any())
    }
}

impl Debug for ModelSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

impl Display for ModelSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Display::fmt(self.rules(), f)
    }
}

/// `family`, then the options.
impl Serialize for ModelSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            family: &'static str,
            #[serde(flatten)]
            options: &'a dyn erased_serde::Serialize,
        }
        Document { family: self.name(), options: self.0.fields() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ModelSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Document)
    }
}

/// What is beside the family, in the document's order.
type Fields = Vec<(String, Value)>;

/// Reads a model's document; the family may stand anywhere in it.
struct Document;

impl<'de> Visitor<'de> for Document {
    type Value = ModelSpec;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("a model: its family and its options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelSpec, A::Error> {
        let mut family: Option<ModelFamily> = None;
        let mut options = Fields::new();
        while let Some(key) = map.next_key::<String>()? {
            if key != "family" {
                options.push((key, map.next_value()?));
            } else if family.replace(map.next_value()?).is_some() {
                return Err(A::Error::duplicate_field("family"));
            }
        }
        let family = family.ok_or_else(|| A::Error::missing_field("family"))?;
        (family.0.read)(options).map_err(A::Error::custom)
    }
}

/// What the registry knows of a model.
#[derive(Debug)]
pub struct ModelEntry {
    name: &'static str,
    help: &'static str,
    /// From what a person wrote to the options.
    resolve: fn(&toml::Table) -> Result<ModelSpec, TaskError>,
    /// From what is in a document to the options.
    read: fn(Fields) -> Result<ModelSpec, serde_json::Error>,
}

impl ModelEntry {
    /// Of a model.
    #[must_use]
    pub const fn of<T: ModelOptions>() -> Self {
        Self { name: T::NAME, help: T::HELP, resolve: resolve::<T>, read: read::<T> }
    }

    /// What the model is for, in half a line.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }
}

impl Named for ModelEntry {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// The entry of a model, which lives as long as the program.
pub(crate) trait Entry: ModelOptions {
    const ENTRY: &'static ModelEntry = &ModelEntry::of::<Self>();
}

impl<T: ModelOptions> Entry for T {}

fn resolve<T: ModelOptions>(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    let written = settings(table, "[model]", &format!("family = \"{}\"", T::NAME), MODEL_KEYS)?;
    T::explicit(written).map(ModelSpec::from)
}

fn read<T: ModelOptions>(options: Fields) -> Result<ModelSpec, serde_json::Error> {
    T::deserialize(MapDeserializer::new(options.into_iter())).map(ModelSpec::from)
}

/// The name of a likelihood, one that is registered.
#[derive(Clone, Copy)]
pub struct ModelFamily(&'static ModelEntry);

impl ModelFamily {
    /// The family of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        MODELS.find(name).map(Self)
    }

    /// Its name in a task.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The model with the options that are written beside its name.
    ///
    /// # Errors
    /// An option that is missing, unknown or of the wrong kind.
    pub fn resolve(self, options: &toml::Table) -> Result<ModelSpec, TaskError> {
        (self.0.resolve)(options)
    }
}

impl PartialEq for ModelFamily {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for ModelFamily {}

impl Debug for ModelFamily {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ModelFamily {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name)
    }
}

/// Reads a family's name, in the words that serde has for an enum.
struct Name;

impl Visitor<'_> for Name {
    type Value = ModelFamily;

    fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("variant identifier")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<ModelFamily, E> {
        ModelFamily::named(name).ok_or_else(|| {
            let known: Vec<String> = MODELS.all().iter().map(|entry| format!("`{}`", entry.name)).collect();
            E::custom(format_args!("unknown variant `{name}`, expected one of {}", known.join(", ")))
        })
    }
}
