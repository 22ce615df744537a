//! Expiry of certificates and revocation lists: reported weeks before, refused by name afterwards.

use std::path::{Path, PathBuf};

use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::clock::rfc3339;
use crate::config::TlsFiles;
use crate::error::{Result, ServerError};
use crate::tls::Credentials;

/// How long before an expiry it is reported.
const WEEKS_BEFORE: Duration = Duration::weeks(2);

/// Something that is valid until a point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validity {
    /// Label of the metric: `authority`, `server`, `revocation-list`, or the name of a client.
    pub(crate) subject: String,
    /// What it is, in words.
    what: String,
    /// The file, where it is one of ours.
    file: Option<PathBuf>,
    /// When it begins, where that is known.
    from: Option<OffsetDateTime>,
    pub(crate) until: OffsetDateTime,
    /// What to do.
    remedy: String,
}

impl Validity {
    /// What to tell an operator at this time; nothing long before the end.
    fn warning(&self, now: OffsetDateTime) -> Option<String> {
        if let Some(from) = self.from.filter(|from| now < *from) {
            let (what, now, from) = (&self.what, rfc3339(now), rfc3339(from));
            return Some(format!("{what} is valid from {from} on, and here it is {now}: set this machine's clock"));
        }
        let left = self.until - now;
        if left > WEEKS_BEFORE {
            return None;
        }
        let when = match left.whole_days() {
            _ if left.is_negative() => "has expired".to_owned(),
            0 => "expires within a day".to_owned(),
            1 => "expires in 1 day".to_owned(),
            days => format!("expires in {days} days"),
        };
        let file = self.file.as_ref().map_or_else(String::new, |file| format!(" {}", file.display()));
        Some(format!("{}{file} {when} ({}): {}", self.what, rfc3339(self.until), self.remedy))
    }
}

/// Everything whose end the operator of a server must know: authority, server certificate, revocation list, and the latest certificate of
/// each client that is enrolled.
pub(crate) fn of(credentials: &Credentials, files: &TlsFiles) -> Vec<Validity> {
    let expires = credentials.expires;
    let folder = files.ca.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let renew = format!("`dp-pvi-server ca renew --ca {}` writes a new one", folder.display());
    let own = |subject: &str, what: &str, file: &PathBuf, until, remedy: &str| Validity {
        subject: subject.to_owned(),
        what: what.to_owned(),
        file: Some(file.clone()),
        from: (subject == "server").then_some(expires.from),
        until,
        remedy: remedy.to_owned(),
    };
    let mut all = vec![
        own("server", "the server's certificate", &files.cert, expires.certificate, &renew),
        own("revocation-list", "the revocation list", &files.crl, expires.revocation_list, &renew),
        own(
            "authority",
            "the authority's certificate",
            &files.ca,
            expires.authority,
            "the federation needs a new authority (`dp-pvi-server ca init`)",
        ),
    ];
    for (client, member) in credentials.enrolled.clients.iter().filter(|(_, member)| member.revoked.is_none()) {
        let Some(until) = member.certificates.last().and_then(|last| OffsetDateTime::parse(&last.expires, &Rfc3339).ok()) else { continue };
        all.push(Validity {
            subject: client.to_string(),
            what: format!("the certificate of {client}"),
            file: None,
            from: None,
            until,
            remedy: "it is renewed with `dp-pvi-server ca sign` on the request that it was made from".into(),
        });
    }
    all
}

/// What to tell the owner of one certificate at this time.
pub(crate) fn ends_soon(what: &str, file: &Path, until: OffsetDateTime, remedy: &str, now: OffsetDateTime) -> Option<String> {
    let (what, file, remedy) = (what.to_owned(), Some(file.to_owned()), remedy.to_owned());
    Validity { subject: String::new(), what, file, from: None, until, remedy }.warning(now)
}

/// What to tell an operator at this time.
pub(crate) fn warnings(all: &[Validity], now: OffsetDateTime) -> Vec<String> {
    all.iter().filter_map(|validity| validity.warning(now)).collect()
}

/// Refuses files of ours with which no one could be let in.
///
/// # Errors
/// [`ServerError::Authentication`] names the file, the day and the command that writes another.
pub(crate) fn refuse_expired(all: &[Validity], now: OffsetDateTime) -> Result<()> {
    match all.iter().find(|validity| validity.file.is_some() && validity.until <= now).and_then(|validity| validity.warning(now)) {
        Some(words) => Err(ServerError::Authentication(words.into())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ca::{Authority, NewFederation};
    use crate::clock;

    #[test]
    fn ends_are_told_weeks_before_and_refused_after() {
        let folder = tempfile::TempDir::new().unwrap();
        let now = clock::date(clock::now());
        let new =
            NewFederation { name: "fed".into(), dns: vec!["localhost".into()], addresses: Vec::new(), days: 90, revocation_list_days: 30 };
        drop(Authority::init(folder.path(), &new, now).unwrap());
        let at = |name: &str| folder.path().join(name);
        let files = TlsFiles {
            ca: at("ca.pem"),
            cert: at("server.pem"),
            key: at("server.key"),
            identity: at("server-identity.key"),
            crl: at("crl.pem"),
            enrolled: at("enrolled.json"),
        };
        let all = of(&Credentials::load(&files, "fed").unwrap(), &files);
        let on = |days: i64| now + Duration::days(days);
        assert_eq!(warnings(&all, on(0)), Vec::<String>::new());
        assert_eq!(warnings(&all, on(15)), Vec::<String>::new());
        assert!(matches!(warnings(&all, on(-2)).as_slice(), [one] if one.contains("set this machine's clock")));
        let warned = warnings(&all, on(20));
        assert!(matches!(warned.as_slice(), [one] if one.contains("crl.pem expires in ") && one.contains("ca renew")), "{warned:?}");
        assert!(refuse_expired(&all, on(29)).is_ok());
        let error = refuse_expired(&all, on(31)).unwrap_err();
        assert!(error.code() == 6 && error.to_string().contains("crl.pem has expired"), "{error}");
        let warned = warnings(&all, on(80));
        assert!(warned.len() == 2 && warned[0].contains("server.pem expires in"), "{warned:?}");
        assert!(refuse_expired(&all, on(91)).unwrap_err().to_string().contains("server.pem has expired"));
        assert_eq!(warnings(&all, on(3649)).len(), 3);
    }
}
