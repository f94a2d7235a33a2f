//! The address policy for supplied URLs: pure functions over URLs and IP addresses.
//!
//! An address is public if the IANA special-purpose registries (RFC 6890 and its updates) do not reserve it. Every
//! other address needs an entry in the operator's [`AllowList`].
//!
//! A URL with an IP address is decided here. A URL with a host name cannot be decided before resolution: its
//! [`AddressCheck`] says whether the resolved addresses must be checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

use super::UrlTrust;

/// Hosts, `host:port` pairs and networks that are allowed although they are not public.
///
/// A listed name is trusted regardless of the addresses it resolves to. A listed network covers both literal and
/// resolved addresses. An address with a port, such as `127.0.0.1:3000`, matches only that literal target; a name for
/// the same host needs its own entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    hosts: Vec<(Host, Option<u16>)>,
    networks: Vec<IpNet>,
}

/// Error for an allow-list entry that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is not a host, host:port or CIDR: {reason}")]
pub struct AllowListError {
    /// The entry as it was written.
    pub entry: String,
    /// Reason why it is invalid.
    pub reason: &'static str,
}

/// Reason why an address is refused. It is written to the log, so it contains neither path nor query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The scheme is neither `http` nor `https`.
    #[error("the scheme {0} is neither http nor https")]
    Scheme(String),
    /// The URL contains a user name or a password, which belong in a header.
    #[error("the URL contains a user name or password")]
    UserInfo,
    /// The URL names no host.
    #[error("the URL has no host")]
    NoHost,
    /// The URL names port 0, which is not connectable.
    #[error("the URL has port 0")]
    NoPort,
    /// The address is neither public nor on the allow list.
    #[error("{host} is the address {address}, which is neither public nor allowed")]
    NotPublic {
        /// The host as the URL names it.
        host: String,
        /// The address of the host.
        address: IpAddr,
    },
}

/// Address check that an accepted URL needs at connect time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressCheck {
    /// The target is trusted; its addresses are not checked.
    Unchecked,
    /// Every address that the host's name resolves to must pass [`AllowList::check_resolved`].
    CheckResolved,
}

impl AllowList {
    /// Parses a comma-separated list of `host`, `host:port`, IP addresses (`::1`, `[::1]:80`) and CIDRs.
    ///
    /// Whitespace around entries and empty entries are ignored. The error names the first invalid entry.
    pub fn parse(list: &str) -> Result<Self, AllowListError> {
        let mut allow = Self::default();
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            allow.add(entry).map_err(|reason| AllowListError { entry: entry.to_owned(), reason })?;
        }
        Ok(allow)
    }

    /// Appends the entries of another list.
    pub fn extend(&mut self, other: AllowList) {
        self.hosts.extend(other.hosts);
        self.networks.extend(other.networks);
    }

    fn add(&mut self, entry: &str) -> Result<(), &'static str> {
        if entry.contains('/') {
            self.networks.push(parse_network(entry)?);
        } else if let Ok(address) = IpAddr::from_str(entry) {
            self.networks.push(IpNet::from(address.to_canonical()));
        } else {
            match parse_target(entry)? {
                (Host::Ipv4(address), None) => self.networks.push(IpNet::from(IpAddr::V4(address))),
                (Host::Ipv6(address), None) => self.networks.push(IpNet::from(IpAddr::V6(address))),
                target => self.hosts.push(target),
            }
        }
        Ok(())
    }

    /// Decides a URL as far as possible without resolving its name.
    ///
    /// Scheme, user info and port 0 are checked for every URL; the address checks apply to supplied URLs only.
    pub(super) fn check_url(&self, url: &Url, trust: UrlTrust) -> Result<AddressCheck, AddressError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(AddressError::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(AddressError::UserInfo);
        }
        if url.port() == Some(0) {
            return Err(AddressError::NoPort);
        }
        let host = url.host().ok_or(AddressError::NoHost)?;
        let host = normalize_host(host.to_owned()).ok_or(AddressError::NoHost)?;
        if trust == UrlTrust::Operator || self.contains_host(&host, url.port_or_known_default()) {
            return Ok(AddressCheck::Unchecked);
        }
        let address = match &host {
            Host::Domain(name) => {
                self.check_loopback_name(name)?;
                return Ok(AddressCheck::CheckResolved);
            }
            Host::Ipv4(address) => IpAddr::V4(*address),
            Host::Ipv6(address) => IpAddr::V6(*address),
        };
        self.check_address(&host.to_string(), address)?;
        Ok(AddressCheck::CheckResolved)
    }

    /// Checks the addresses that a name resolved to. One refused address refuses the name, because mixing public and
    /// private addresses is a known way to bypass such a filter.
    pub(super) fn check_resolved(&self, host: &str, addresses: &[SocketAddr]) -> Result<(), AddressError> {
        addresses.iter().try_for_each(|address| self.check_address(host, address.ip()))
    }

    /// Refuses a loopback name (RFC 6761) unless loopback is allowed. Such a name is not left to the resolver, which
    /// might not know it or might forward it to other DNS servers. The resolved addresses of an allowed loopback name
    /// are checked like those of any other name.
    fn check_loopback_name(&self, name: &str) -> Result<(), AddressError> {
        if name != "localhost" && !name.ends_with(".localhost") {
            return Ok(());
        }
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if loopback.iter().any(|address| self.contains_address(*address)) {
            return Ok(());
        }
        Err(AddressError::NotPublic { host: name.to_owned(), address: loopback[0] })
    }

    fn check_address(&self, host: &str, address: IpAddr) -> Result<(), AddressError> {
        if is_public(address) || self.contains_address(address) {
            return Ok(());
        }
        Err(AddressError::NotPublic { host: host.to_owned(), address })
    }

    fn contains_host(&self, host: &Host, port: Option<u16>) -> bool {
        self.hosts.iter().any(|(listed, on)| listed == host && (on.is_none() || *on == port))
    }

    fn contains_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

impl FromStr for AllowList {
    type Err = AllowListError;

    fn from_str(list: &str) -> Result<Self, AllowListError> {
        Self::parse(list)
    }
}

fn parse_network(entry: &str) -> Result<IpNet, &'static str> {
    let network =
        IpNet::from_str(entry).map_err(|_| "expected a CIDR: an address, a slash and a prefix length")?;
    if network.addr() != network.network() {
        return Err("the address has bits set beyond the prefix length");
    }
    if matches!(network, IpNet::V6(v6) if v6.prefix_len() >= 96 && v6.addr().to_ipv4_mapped().is_some()) {
        return Err("write a network of IPv4-mapped addresses as an IPv4 network");
    }
    Ok(network)
}

/// Parses `host` or `host:port`, with the host as the URL standard parses it, so that entries and URLs compare equal.
fn parse_target(entry: &str) -> Result<(Host, Option<u16>), &'static str> {
    if entry.contains(|c: char| c.is_whitespace() || matches!(c, '@' | '*' | '?' | '#' | '\\')) {
        return Err("expected a host name or an IP address");
    }
    let (host, port) = match entry.rsplit_once(':') {
        // The colon is inside the brackets of an IPv6 address without a port.
        Some((_, rest)) if rest.ends_with(']') => (entry, None),
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (entry, None),
    };
    let host = Host::parse(host).map_err(|_| "the host is invalid")?;
    let host = normalize_host(host).ok_or("the host is empty")?;
    Ok((host, port))
}

fn parse_port(port: &str) -> Result<u16, &'static str> {
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse() {
        Ok(port) if digits && port != 0 => Ok(port),
        _ => Err("expected a port from 1 to 65535"),
    }
}

/// Normalizes a host: strips a name's trailing dot, and maps an IPv4-mapped address to the IPv4 address that the kernel
/// would connect to. Returns `None` if the name is empty.
fn normalize_host(host: Host) -> Option<Host> {
    match host {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name);
            (!name.is_empty()).then(|| Host::Domain(name.to_owned()))
        }
        Host::Ipv4(address) => Some(Host::Ipv4(address)),
        Host::Ipv6(address) => Some(match address.to_ipv4_mapped() {
            Some(v4) => Host::Ipv4(v4),
            None => Host::Ipv6(address),
        }),
    }
}

/// Returns true if an address belongs to the public Internet.
///
/// An IPv4 address embedded in an IPv6 address is judged by itself if the kernel or the network translates it
/// (IPv4-mapped, and the NAT64 prefix of RFC 6052). Tunnel addresses that embed one (6to4, Teredo, and the deprecated
/// IPv4-compatible form) are refused regardless of the embedded address.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !NOT_PUBLIC_V4.iter().any(|network| network.contains(&v4)),
        IpAddr::V6(v6) => match embedded_ipv4(v6) {
            Some(v4) => is_public(IpAddr::V4(v4)),
            None => {
                GLOBAL_UNICAST.contains(&v6) && !NOT_PUBLIC_V6.iter().any(|network| network.contains(&v6))
            }
        },
    }
}

fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if NAT64.contains(&address) {
        let [.., a, b, c, d] = address.octets();
        return Some(Ipv4Addr::new(a, b, c, d));
    }
    address.to_ipv4_mapped()
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

const fn v6(a: u16, b: u16, c: u16, prefix_len: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix_len)
}

/// The IPv4 special-purpose registry, and one public address that serves a cloud's metadata.
const NOT_PUBLIC_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 0, 8),        // this network (RFC 791)
    v4(10, 0, 0, 0, 8),       // private (RFC 1918)
    v4(100, 64, 0, 0, 10),    // carrier-grade NAT (RFC 6598), and some clouds' metadata
    v4(127, 0, 0, 0, 8),      // loopback (RFC 1122)
    v4(168, 63, 129, 16, 32), // a cloud's host agent and metadata, on a public number
    v4(169, 254, 0, 0, 16),   // link-local (RFC 3927), and most clouds' metadata
    v4(172, 16, 0, 0, 12),    // private (RFC 1918)
    v4(192, 0, 0, 0, 24),     // protocol assignments (RFC 6890)
    v4(192, 0, 2, 0, 24),     // documentation (RFC 5737)
    v4(192, 88, 99, 0, 24),   // 6to4 relays (RFC 7526)
    v4(192, 168, 0, 0, 16),   // private (RFC 1918)
    v4(198, 18, 0, 0, 15),    // benchmarking (RFC 2544)
    v4(198, 51, 100, 0, 24),  // documentation (RFC 5737)
    v4(203, 0, 113, 0, 24),   // documentation (RFC 5737)
    v4(224, 0, 0, 0, 4),      // multicast (RFC 5771)
    v4(240, 0, 0, 0, 4),      // reserved (RFC 1112), broadcast included
];

/// The IPv6 global unicast range that IANA allocates from. Loopback, unique-local (`fc00::/7`), link-local
/// (`fe80::/10`), the discard prefix, multicast and IPv4-compatible addresses all lie outside it.
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 3);

/// The well-known NAT64 prefix (RFC 6052). The local-use prefix, `64:ff9b:1::/48`, translates into a private network,
/// and lies outside [`GLOBAL_UNICAST`].
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// Entries of the IPv6 special-purpose registry that lie inside [`GLOBAL_UNICAST`].
const NOT_PUBLIC_V6: [Ipv6Net; 4] = [
    v6(0x2001, 0, 0, 23),     // protocol assignments (RFC 2928): Teredo, benchmarking, ORCHID
    v6(0x2001, 0xdb8, 0, 32), // documentation (RFC 3849)
    v6(0x2002, 0, 0, 16),     // 6to4 (RFC 3056)
    v6(0x3fff, 0, 0, 20),     // documentation (RFC 9637)
];

#[cfg(test)]
mod tests;
