//! Parsing of the server's URL.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::OpenError;

/// TCP keepalive: idle time before the first probe, interval between probes, and number of probes. `SILENCE` is
/// also the timeout of unacknowledged data (`tcp_user_timeout`).
const SILENCE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

const FORM: OpenError = OpenError::Address(
    "it is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE with special characters \
     percent-encoded, or has an option that is unknown",
);

/// Connection parameters and TLS connector of a server.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
}

impl Address {
    /// Parses a URL. Errors contain no part of it, because a password that is not percent-encoded can end up
    /// in any part.
    pub(super) fn parse(url: &str, connect_timeout: Duration) -> Result<Self, OpenError> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(OpenError::Address("it must begin with postgres:// or postgresql://"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // An unencoded question mark in a password would hide the options, including `sslmode`.
        if query.contains(['@', '?']) {
            return Err(FORM);
        }
        let mut encryption = Encryption::default();
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => encryption.mode(mode)?,
                Some(("sslrootcert", path)) => encryption.authorities(path)?,
                _ => others.push(pair),
            }
        }
        let url = format!("{base}?{}", others.join("&"));
        let mut config: Config = url.parse().map_err(|_| FORM)?;
        if config.get_hosts().is_empty() {
            return Err(OpenError::Address("it names no host"));
        }
        let mode = if encryption.wanted { SslMode::Require } else { SslMode::Disable };
        config.ssl_mode(mode);
        if config.get_application_name().is_none() {
            config.application_name("agentd");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(connect_timeout);
        }
        let says = |option: &str| others.iter().any(|pair| pair.starts_with(option));
        if !says("keepalives") {
            config.keepalives_idle(SILENCE).keepalives_interval(PROBE).keepalives_retries(PROBES);
        }
        if !says("tcp_user_timeout") {
            config.tcp_user_timeout(SILENCE);
        }
        Ok(Self { config, tls: encryption.connector()? })
    }
}

/// TLS options of a URL, named as in libpq.
#[derive(Default)]
struct Encryption {
    wanted: bool,
    /// PEM file with root certificates, in place of those compiled in.
    authorities: Option<PathBuf>,
}

impl Encryption {
    fn mode(&mut self, mode: &str) -> Result<(), OpenError> {
        self.wanted = match mode {
            "disable" => false,
            // Encryption without verification of the certificate gives no protection against interception, so
            // `require` verifies it too.
            "require" | "verify-ca" | "verify-full" => true,
            _ => {
                return Err(OpenError::Address(
                    "its sslmode must be disable, require or verify-full; what may or may not be encrypted is \
                     not offered",
                ));
            }
        };
        Ok(())
    }

    fn authorities(&mut self, path: &str) -> Result<(), OpenError> {
        let path = percent_decode_str(path)
            .decode_utf8()
            .map_err(|_| OpenError::Address("its sslrootcert is not percent-encoded UTF-8"))?;
        self.authorities = (path != "system").then(|| PathBuf::from(path.as_ref()));
        Ok(())
    }

    fn connector(&self) -> Result<MakeRustlsConnect, OpenError> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(path) => read_authorities(path, &mut roots)
                .map_err(|why| OpenError::Authorities { path: path.clone(), why })?,
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions' suites")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(config))
    }
}

fn read_authorities(path: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("there is no certificate in it".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, Duration::from_secs(5))
    }

    #[test]
    fn encryption_is_wanted_where_the_address_says_so() {
        for (query, expected) in [
            ("", SslMode::Disable),
            ("?sslmode=disable", SslMode::Disable),
            ("?sslmode=require", SslMode::Require),
            ("?sslmode=verify-full&sslrootcert=system&connect_timeout=3", SslMode::Require),
            ("?connect_timeout=3&sslmode=verify-ca", SslMode::Require),
        ] {
            let address = parse(&format!("postgres://u:p@db.example:5433/jobs{query}")).expect("an address");
            assert_eq!(address.config.get_ssl_mode(), expected, "{query}");
            assert_eq!(address.config.get_dbname(), Some("jobs"));
        }
        let address = parse("postgresql://u@%2Ftmp%2Fsocket/jobs").expect("an address");
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(5)));
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_it() {
        for url in [
            "",
            "sqlite://secret",
            "postgres://",
            "postgres:///jobs",
            "postgres://u:secret?1@host/jobs",
            "postgres://u:secret@host/jobs?secret=1",
            "postgres://u:secret@host:secret/jobs",
            "postgres://u:secret@host/jobs?sslmode=prefer",
            "postgres://u:secret@host/jobs?sslmode=secret",
            "postgres://u:secret@host/jobs?sslrootcert=%ff",
        ] {
            let error = parse(url).err().unwrap_or_else(|| panic!("{url} is refused"));
            assert!(matches!(error, OpenError::Address(_)), "{url}: {error:?}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("secret"), "{url}: {shown}");
        }
    }

    #[test]
    fn authorities_are_read_when_the_store_is_opened() {
        let missing = parse("postgres://u@host/jobs?sslmode=require&sslrootcert=%2Fno%2Fsuch.pem");
        assert!(matches!(missing, Err(OpenError::Authorities { .. })));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("empty.pem");
        std::fs::write(&file, "nothing").expect("written");
        let empty = parse(&format!("postgres://u@host/jobs?sslrootcert={}", file.display()));
        assert!(matches!(empty, Err(OpenError::Authorities { .. })));
    }
}
