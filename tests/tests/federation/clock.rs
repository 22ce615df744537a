//! Clock half: a site whose clock jumps by a year forth and back spends what every other site spends, and releases nothing twice.
//! The site is put together from the client's own parts, with another clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dp_pvi_client::clock::SystemClock;
use dp_pvi_client::config::Config;
use dp_pvi_client::train::SiteTrainer;
use dp_pvi_client::transport::GrpcTransport;
use dp_pvi_client::{run as client, tls};
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::SecureNoise;
use dp_pvi_programs::ledger::SqliteLedger;
use dp_pvi_protocol::driver::{Clock, Event, Observer, Patience, drive_site};
use dp_pvi_protocol::participant::Participant;
use dp_pvi_protocol::time::{Backoff, Timestamp};
use dp_pvi_tests::federation::{Federation, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

const YEAR: u64 = 365 * 24 * 3600 * 1000;
const VISITS: u32 = 4;

/// At every look a year later, a year earlier, or right.
#[derive(Default)]
struct Jumping {
    looks: AtomicU64,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now().as_millis();
        Timestamp::from_millis(match self.looks.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => now + YEAR,
            1 => now - YEAR,
            _ => now,
        })
    }

    async fn sleep(&self, duration: Duration) {
        SystemClock.sleep(duration).await;
    }
}

/// Stops the process's future after a number of commits, as a crash would.
struct Count {
    sent: u32,
}

impl Observer for Count {
    fn on_event(&mut self, event: &Event<'_>) {
        if matches!(event, Event::Sending { .. }) {
            self.sent += 1;
        }
    }
}

async fn drive(config: &Config, clock: &Jumping) -> u32 {
    let private = config.private().unwrap();
    let tls = tls::load(config).unwrap();
    let identity = client::identity(config, &tls).unwrap();
    let store = SqliteLedger::open(&private.ledger).unwrap();
    let ledger = Ledger::open(store, identity.key.clone(), private.identity.clone(), private.budget).unwrap();
    let mut participant = Participant::new(identity, client::policy(config).unwrap(), private.nominal_units, ledger);
    let mut transport = GrpcTransport::new(&config.site, tls);
    let mut trainer = SiteTrainer::load(config, SecureNoise).await.unwrap();
    let mut observer = Count { sent: 0 };
    let patience = Patience {
        between: Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) },
        give_up_after: Duration::from_secs(30),
        first_contact: Duration::from_secs(30),
        idle: Duration::from_millis(20),
        jitter: Box::new(|_| 1.0),
    };
    drive_site(&mut participant, &mut transport, &mut trainer, clock, &mut observer, &patience).await.unwrap();
    observer.sent
}

#[test]
fn a_clock_that_jumps_by_years_refunds_and_repeats_nothing() {
    let task = Task { schedule: Schedule::Synchronous(VISITS), tick: 1, ..Task::default() };
    let sites = Records::generated(80, 3, 0).sites(&[40, 40], Likelihood::Logistic);
    let federation = Federation::new(&task.toml(), &task.schema(3), &sites);
    let mut server = federation.start_server();
    let mut other = federation.start_client("site-2", &server.address);
    let file = federation.home("site-1").join("client.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let config = Config::parse(&text, file.parent().unwrap(), [("DP_PVI__SITE__SERVER".to_owned(), server.address.clone())]).unwrap();
    let clock = Jumping::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let sent = runtime.block_on(async {
        // Dropped in the middle of its second round, and started again on its ledger.
        let _ = tokio::time::timeout(Duration::from_millis(1700), drive(&config, &clock)).await;
        tokio::time::timeout(Duration::from_secs(60), drive(&config, &clock)).await.expect("the run ends")
    });
    assert!(clock.looks.load(Ordering::SeqCst) > 3, "the clock was looked at");
    assert!(sent <= VISITS + 1, "{sent} sendings");
    other.expect(0);
    server.process.expect(0);
    statements_cover_ledgers(&federation);
    let spent = |site: &str| -> Value {
        serde_json::from_str(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"]))).unwrap()
    };
    let (jumping, steady) = (spent("site-1"), spent("site-2"));
    assert_eq!(jumping["releases"], VISITS);
    assert_eq!(jumping["epsilon_spent"], steady["epsilon_spent"]);
    let transcript = federation.home("server").join("transcript");
    run(&mut federation.server_command(&["export", "--transcript", transcript.to_str().unwrap()]));
    run(&mut federation.client_command("site-1", &["ledger", "verify", "--transcript", transcript.to_str().unwrap()]));
}
