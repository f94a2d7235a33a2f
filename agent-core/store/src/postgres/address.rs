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

use super::{PostgresOpenError, PostgresOptions};

/// TCP keepalive: idle time before the first probe, interval between probes, and number of probes. `KEEPALIVE_IDLE` is
/// also the timeout of unacknowledged data (`tcp_user_timeout`).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const MAX_KEEPALIVE_PROBES: u32 = 3;

const MALFORMED_URL: PostgresOpenError = PostgresOpenError::Address(
    "it is not of the form postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE with special characters \
     percent-encoded, or has an option that is unknown",
);

/// Use of the server's connections by a pooler between this process and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolMode {
    /// A connection is one of the server for as long as it is open, as without a pooler. It is set up once, and
    /// statements are prepared.
    Session,
    /// Each transaction of a connection may run on another one of the server. So each statement is in a transaction,
    /// which begins with the settings, and statements are unnamed.
    Transaction,
}

/// Connection parameters, TLS connector and pooler of a server.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) pool_mode: PoolMode,
}

/// Checks a URL as opening a store does, with the certificates that `sslrootcert` names. Nothing is connected.
///
/// # Errors
/// [`PostgresOpenError::Address`] or [`PostgresOpenError::RootCertificates`].
pub fn check_url(url: &str) -> Result<(), PostgresOpenError> {
    Address::parse(url, PostgresOptions::default().connect_timeout).map(drop)
}

impl Address {
    /// Parses a URL. Errors contain no part of it, because a password that is not percent-encoded can end up
    /// in any part.
    pub(super) fn parse(url: &str, connect_timeout: Duration) -> Result<Self, PostgresOpenError> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(PostgresOpenError::Address("it must begin with postgres:// or postgresql://"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // An unencoded question mark in a password would hide the options, including `sslmode`.
        if query.contains(['@', '?']) {
            return Err(MALFORMED_URL);
        }
        let (mut encryption, mut pool_mode) = (TlsOptions::default(), PoolMode::Session);
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => encryption.set_mode(mode)?,
                Some(("sslrootcert", path)) => encryption.set_root_certificates(path)?,
                Some(("pool_mode", mode)) => pool_mode = parse_pool_mode(mode)?,
                _ => others.push(pair),
            }
        }
        let url = format!("{base}?{}", others.join("&"));
        let mut config: Config = url.parse().map_err(|_| MALFORMED_URL)?;
        if config.get_hosts().is_empty() {
            return Err(PostgresOpenError::Address("it has no host"));
        }
        let mode = if encryption.is_required { SslMode::Require } else { SslMode::Disable };
        config.ssl_mode(mode);
        if config.get_application_name().is_none() {
            config.application_name("agentd");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(connect_timeout);
        }
        let says = |option: &str| others.iter().any(|pair| pair.starts_with(option));
        if !says("keepalives") {
            config
                .keepalives_idle(KEEPALIVE_IDLE)
                .keepalives_interval(KEEPALIVE_INTERVAL)
                .keepalives_retries(MAX_KEEPALIVE_PROBES);
        }
        if !says("tcp_user_timeout") {
            config.tcp_user_timeout(KEEPALIVE_IDLE);
        }
        Ok(Self { config, tls: encryption.connector()?, pool_mode })
    }
}

/// Parses the option `pool_mode`, named as in PgBouncer.
fn parse_pool_mode(mode: &str) -> Result<PoolMode, PostgresOpenError> {
    match mode {
        "session" => Ok(PoolMode::Session),
        "transaction" => Ok(PoolMode::Transaction),
        _ => Err(PostgresOpenError::Address(
            "its pool_mode must be session or transaction; a pooler that shares server connections between statements is \
             not supported",
        )),
    }
}

/// TLS options of a URL, named as in libpq.
#[derive(Default)]
struct TlsOptions {
    is_required: bool,
    /// PEM file with root certificates, in place of those compiled in.
    root_certificates: Option<PathBuf>,
}

impl TlsOptions {
    fn set_mode(&mut self, mode: &str) -> Result<(), PostgresOpenError> {
        self.is_required = match mode {
            "disable" => false,
            // Encryption without verification of the certificate gives no protection against interception, so
            // `require` verifies it too.
            "require" | "verify-ca" | "verify-full" => true,
            _ => {
                return Err(PostgresOpenError::Address(
                    "its sslmode must be disable, require or verify-full; modes with optional encryption are not supported",
                ));
            }
        };
        Ok(())
    }

    fn set_root_certificates(&mut self, path: &str) -> Result<(), PostgresOpenError> {
        let path = percent_decode_str(path)
            .decode_utf8()
            .map_err(|_| PostgresOpenError::Address("its sslrootcert is not percent-encoded UTF-8"))?;
        self.root_certificates = (path != "system").then(|| PathBuf::from(path.as_ref()));
        Ok(())
    }

    fn connector(&self) -> Result<MakeRustlsConnect, PostgresOpenError> {
        let mut roots = RootCertStore::empty();
        match &self.root_certificates {
            Some(path) => load_root_certificates(path, &mut roots)
                .map_err(|why| PostgresOpenError::RootCertificates { path: path.clone(), why })?,
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

fn load_root_certificates(path: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, PostgresOpenError> {
        Address::parse(url, Duration::from_secs(5))
    }

    #[test]
    fn the_url_decides_about_encryption() {
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
    fn a_pooler_of_transactions_is_named_in_the_address() {
        for (query, expected) in [
            ("", PoolMode::Session),
            ("?pool_mode=session", PoolMode::Session),
            ("?pool_mode=transaction&connect_timeout=3", PoolMode::Transaction),
        ] {
            let address = parse(&format!("postgres://u@h/d{query}")).expect("an address");
            assert_eq!(address.pool_mode, expected, "{query}");
        }
    }

    #[test]
    fn errors_of_a_url_do_not_repeat_it() {
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
            "postgres://u:secret@host/jobs?pool_mode=statement",
            "postgres://u:secret@host/jobs?sslrootcert=%ff",
        ] {
            let error = parse(url).err().unwrap_or_else(|| panic!("{url} is refused"));
            assert!(matches!(error, PostgresOpenError::Address(_)), "{url}: {error:?}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("secret"), "{url}: {shown}");
        }
    }

    #[test]
    fn authorities_are_read_when_the_store_is_opened() {
        let missing = parse("postgres://u@host/jobs?sslmode=require&sslrootcert=%2Fno%2Fsuch.pem");
        assert!(matches!(missing, Err(PostgresOpenError::RootCertificates { .. })));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("empty.pem");
        std::fs::write(&file, "nothing").expect("written");
        let empty = parse(&format!("postgres://u@host/jobs?sslrootcert={}", file.display()));
        assert!(matches!(empty, Err(PostgresOpenError::RootCertificates { .. })));
    }
}
