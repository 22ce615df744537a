//! Metrics for Prometheus, and the log.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use time::OffsetDateTime;
use tracing::warn;

use crate::clock;
use crate::expiry::Validity;

/// Exhausted resources are reported at most this often.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// What became of an update.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpdateLabel {
    pub(crate) result: UpdateResult,
}

/// What became of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum UpdateResult {
    /// Durable, for the open round.
    Stored,
    /// The same bytes again: answered by the same receipt.
    Repeated,
    /// After the close.
    Excluded,
    /// The site said that it sends none.
    Refused,
    /// Not accepted.
    Rejected,
}

impl EncodeLabelValue for UpdateResult {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder) -> Result<(), std::fmt::Error> {
        let text = match self {
            Self::Stored => "stored",
            Self::Repeated => "repeated",
            Self::Excluded => "excluded",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
        };
        EncodeLabelValue::encode(&text, encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Subject {
    subject: String,
}

/// Parts of a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Phase {
    /// `collect`: from opening to close; `sum`: adding the payloads up.
    pub(crate) phase: &'static str,
}

/// All metrics of a server.
#[derive(Debug)]
pub(crate) struct Telemetry {
    registry: Registry,
    pub(crate) connections: Gauge,
    pub(crate) round: Gauge,
    pub(crate) rounds: Family<Phase, Histogram, fn() -> Histogram>,
    pub(crate) updates: Family<UpdateLabel, Counter>,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) retries: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) rejections: Counter,
    pub(crate) resource_exhaustions: Counter,
    pub(crate) throttled: Counter,
    /// When a lack was told last.
    reported: Mutex<Option<Instant>>,
    pub(crate) summer_connected: Gauge,
    pub(crate) suspended: Gauge,
    pub(crate) aggregation_dropouts: Counter,
    pub(crate) aggregation_aborts: Counter,
    crl_expires: Gauge,
    certificate_expires: Gauge,
    expiry: Family<Subject, Gauge>,
}

impl Telemetry {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("dp_pvi");
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of this server", build);
        let bytes = Family::<Direction, Counter>::default();
        let (bytes_in, bytes_out) =
            (bytes.get_or_create_owned(&Direction { direction: "in" }), bytes.get_or_create_owned(&Direction { direction: "out" }));
        registry.register("bytes", "Bytes exchanged with clients, before encryption", bytes);
        let rounds =
            Family::<Phase, Histogram, fn() -> Histogram>::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 12)));
        registry.register_with_unit("round_duration", "Duration of the parts of a round", Unit::Seconds, rounds.clone());
        let updates = Family::<UpdateLabel, Counter>::default();
        let expiry = Family::<Subject, Gauge>::default();
        let help = "Time that is left to certificates and the revocation list; negative once they have expired";
        registry.register_with_unit("certificate_expiry", help, Unit::Seconds, expiry.clone());
        registry.register("updates", "Updates by what became of them", updates.clone());
        Self {
            connections: gauge(&mut registry, "sites_connected", "Open authenticated connections"),
            round: gauge(&mut registry, "round", "Rounds that were closed"),
            suspended: gauge(&mut registry, "suspended", "1 while the run is suspended because too few sites, or not the summer, answer"),
            summer_connected: gauge(&mut registry, "summer_connected", "1 while the second party of an aggregated run is connected"),
            aggregation_dropouts: counter(&mut registry, "aggregation_dropouts", "Sites that were asked and are not in their round's sum"),
            aggregation_aborts: counter(&mut registry, "aggregation_aborts", "Rounds of aggregated runs that ended without a sum"),
            crl_expires: gauge(
                &mut registry,
                "revocation_list_expires_timestamp_seconds",
                "When the revocation list expires; no client is accepted afterwards",
            ),
            certificate_expires: gauge(&mut registry, "certificate_expires_timestamp_seconds", "When the server's certificate expires"),
            expiry,
            retries: counter(&mut registry, "retries", "Submissions of bytes that were already stored"),
            handshake_failures: counter(&mut registry, "handshake_failures", "TLS handshakes that failed"),
            rejections: counter(&mut registry, "rejections", "Messages that were not accepted"),
            throttled: counter(&mut registry, "throttled_calls", "Calls and requests beyond a client's share of work"),
            resource_exhaustions: counter(
                &mut registry,
                "resource_exhaustions",
                "Times that work waited because file descriptors, memory or room on a disk had run out",
            ),
            reported: Mutex::new(None),
            rounds,
            updates,
            bytes_in,
            bytes_out,
            registry,
        }
    }

    /// Counts one update.
    pub(crate) fn update(&self, result: UpdateResult) {
        self.updates.get_or_create(&UpdateLabel { result }).inc();
    }

    /// Tells what ends when.
    pub(crate) fn expiry(&self, all: &[Validity], now: OffsetDateTime) {
        self.expiry.clear();
        for Validity { subject, until, .. } in all {
            self.expiry.get_or_create(&Subject { subject: subject.clone() }).set((*until - now).whole_seconds());
            match subject.as_str() {
                "revocation-list" => drop(self.crl_expires.set(until.unix_timestamp())),
                "server" => drop(self.certificate_expires.set(until.unix_timestamp())),
                _ => {}
            }
        }
    }

    /// Counts a wait for something that the system has run out of, and tells it once a minute.
    pub(crate) fn resource_exhausted(&self, what: &str, error: &dyn std::fmt::Display) {
        self.resource_exhaustions.inc();
        let now = clock::instant();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|last| now.duration_since(last) >= REPEAT_AFTER) {
            *reported = Some(now);
            warn!(%error, waits = self.resource_exhaustions.get(), "{what}: it is tried again until it works");
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge<i64, AtomicI64> {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter<u64, AtomicU64> {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}
