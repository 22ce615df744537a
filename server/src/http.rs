//! Plain HTTP for people and monitoring: health, metrics, and a status page. Nothing here changes anything or shows anything
//! that is not public.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dp_pvi_protocol::text::visible_json;
use dp_pvi_results::report::html::{Escaped, PAGE_STYLE};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tower::ServiceExt;
use tracing::debug;

use crate::clock;
use crate::connection_limiter::ConnectionLimiter;
use crate::convergence_status::StatusCache;
use crate::engine::{EngineHandle, Snapshot};
use crate::error::name_of;
use crate::expiry;
use crate::resource_backoff::ResourceBackoff;
use crate::telemetry::Telemetry;
use crate::tls::LiveCredentials;

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) engine: EngineHandle,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) credentials: Arc<LiveCredentials>,
    pub(crate) convergence: StatusCache,
    pub(crate) federation: Arc<str>,
    pub(crate) listen: SocketAddr,
    /// Names by which this port may be called, beside its addresses and the names in the server's certificate.
    pub(crate) hosts: Arc<[String]>,
}

/// A request's head must be complete by then.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// And its connection over by then, however slowly the other side reads.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes of a request's head.
const HEAD_BYTES: usize = 8 << 10;
/// Most headers of a request.
const HEADERS: usize = 64;

/// What every answer says to a browser: no script, nothing from elsewhere, no frame around it, no guess at its kind, no copy of it.
const SAFETY: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Serves until the future that runs it is dropped, with at most `most` connections: every one has a deadline, answers one request and
/// ends. Beyond them the address that has most of them loses its oldest.
pub(crate) async fn serve(listener: TcpListener, pages: Pages, most: usize) {
    let telemetry = pages.telemetry.clone();
    let routes = Router::new()
        .route("/", get(status_page))
        .route("/style.css", get(|| async { ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], PAGE_STYLE) }))
        .route("/status.json", get(status_json))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(pages.clone());
    let (limiter, mut backoff) = (ConnectionLimiter::new(most), ResourceBackoff::default());
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tokio::time::sleep(backoff.pause(&telemetry, "a connection to the status page could not be accepted", &error)).await;
                continue;
            }
        };
        backoff = ResourceBackoff::default();
        let (routes, pages) = (routes.clone(), pages.clone());
        let service = hyper::service::service_fn(move |request| answer(routes.clone(), pages.clone(), request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_headers(HEADERS)
            .max_buf_size(HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        limiter.start(address.ip(), async move {
            if !matches!(tokio::time::timeout(TIMEOUT, connection).await, Ok(Ok(()))) {
                debug!(%address, "a connection to the status page did not end in order");
            }
        });
    }
}

/// One answer, with what every answer says.
async fn answer(routes: Router, pages: Pages, request: Request<Incoming>) -> Result<Response, Infallible> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = if host.is_some_and(|host| pages.is_ours(host)) {
        routes.oneshot(request).await?
    } else {
        let words = "this name is not one of the server's: use its address, a name in its certificate, or one of [server] http_hosts\n";
        (StatusCode::MISDIRECTED_REQUEST, words).into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in SAFETY {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

impl Pages {
    /// Whether a `Host` means this server. A page of someone else whose name was pointed at this address could read everything here
    /// with the browser of anyone who looks at it: so names count only if an operator chose them.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let ours = |known: &String| known.eq_ignore_ascii_case(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(ours)
            || self.credentials.current().enrolled.server_names.iter().any(ours)
    }
}

/// Ready: the engine answers and the revocation list is still valid.
async fn ready(State(pages): State<Pages>) -> Response {
    let now = clock::date(clock::now());
    let problem = if pages.engine.status().await.is_err() {
        "the engine does not answer\n"
    } else if pages.credentials.current().expires.revocation_list <= now {
        "the revocation list has expired: no client is accepted; `dp-pvi-server ca renew` writes a new one\n"
    } else if pages.credentials.current().expires.certificate <= now {
        "the server's certificate has expired; `dp-pvi-server ca renew` writes a new one\n"
    } else {
        return "ready\n".into_response();
    };
    (StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}

async fn metrics(State(pages): State<Pages>) -> Response {
    pages.telemetry.expiry(&pages.credentials.validities(), clock::date(clock::now()));
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], pages.telemetry.text()).into_response()
}

async fn status_json(State(pages): State<Pages>) -> Response {
    match pages.engine.status().await {
        Ok(mut snapshot) => {
            snapshot.warnings.extend(expiry::warnings(&pages.credentials.validities(), clock::date(clock::now())));
            snapshot.convergence = pages.convergence.after(snapshot.rounds_closed).await;
            match serde_json::to_string(&snapshot) {
                Ok(text) => ([(header::CONTENT_TYPE, "application/json")], visible_json(&text).into_owned()).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n").into_response(),
    }
}

async fn status_page(State(pages): State<Pages>) -> Response {
    match pages.engine.status().await {
        Ok(mut snapshot) => {
            let now = clock::date(clock::now());
            snapshot.warnings.extend(expiry::warnings(&pages.credentials.validities(), now));
            snapshot.convergence = pages.convergence.after(snapshot.rounds_closed).await;
            let page = page(&pages, &snapshot, now);
            ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n").into_response(),
    }
}

fn page(pages: &Pages, snapshot: &Snapshot, now: OffsetDateTime) -> String {
    let mut html = String::new();
    // Writing into a string cannot fail.
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{federation}: {task}</title><link rel=\"stylesheet\" href=\"/style.css\"></head><body><h1>{federation}</h1>\
         <p>Task <b>{task}</b>, run {run}; {schedule}. gRPC on {listen}. {time} UTC.</p><table><tr><th>stage</th><td>{stage}</td></tr>\
         <tr><th>rounds</th><td>{closed}</td></tr>",
        federation = Escaped(&pages.federation),
        task = Escaped(&snapshot.task),
        run = snapshot.run,
        schedule = snapshot.schedule,
        listen = pages.listen,
        time = clock::rfc3339(now),
        stage = snapshot.stage,
        closed = snapshot.progress(),
    );
    if snapshot.paused {
        html.push_str("<tr><th>paused</th><td>by an operator: no round opens until the run is resumed</td></tr>");
    }
    if let Some(turn) = &snapshot.turn {
        let _ = write!(html, "<tr><th>turn</th><td>{turn}</td></tr>");
    }
    if let Some(whom) = snapshot.waits_for() {
        let _ = write!(html, "<tr><th>waiting for</th><td>{}</td></tr>", Escaped(&whom));
    }
    if let Some(seconds) = snapshot.deadline_in_seconds {
        let what = if snapshot.stage == "suspended" { "the run ends" } else { "closes" };
        let _ = write!(html, "<tr><th>{what} in at most</th><td>{seconds} s</td></tr>");
    }
    if let Some(convergence) = &snapshot.convergence {
        let _ = write!(html, "<tr><th>distance to go</th><td>{}</td></tr>", Escaped(&convergence.text()));
    }
    if let Some(outcome) = &snapshot.outcome {
        let _ = write!(html, "<tr><th>outcome</th><td>{}</td></tr>", name_of(outcome));
    }
    if let Some(reason) = &snapshot.reason {
        let _ = write!(html, "<tr><th>reason</th><td>{}</td></tr>", Escaped(reason));
    }
    for warning in &snapshot.warnings {
        let _ = write!(html, "<tr><th>warning</th><td>{}</td></tr>", Escaped(warning));
    }
    if let Some(summer) = &snapshot.summer {
        let _ = write!(html, "<tr><th>summer</th><td>{}</td></tr>", Escaped(&summer.text()));
    }
    let expires = pages.credentials.current().expires;
    let _ = write!(
        html,
        "<tr><th>revocation list valid until</th><td>{}</td></tr></table><h2>Members</h2><div class=\"scroll\" tabindex=\"0\"><table><tr><th>client</th><th>role</th>\
         <th>units</th><th>updates included</th><th>ledger row</th><th>state</th></tr>",
        clock::rfc3339(expires.revocation_list)
    );
    for member in &snapshot.members {
        let number = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), |value| value.to_string());
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            Escaped(member.client.as_str()),
            name_of(&member.role),
            number(member.nominal_units),
            member.included,
            number(member.ledger_row),
            Escaped(&member.state()),
        );
    }
    for (client, role) in &snapshot.absent {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>–</td><td>–</td><td>–</td><td>enrolled, has not joined</td></tr>",
            Escaped(client.as_str()),
            name_of(role)
        );
    }
    html.push_str("</table></div><p><a href=\"/metrics\">metrics</a> · <a href=\"/status.json\">status as JSON</a></p></body></html>");
    html
}
