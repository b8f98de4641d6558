//! Where a tenant's models and plugins may be called.
//!
//! A tenant writes the address, so it must not lead into the network that we run in. [`EgressPolicy::admit`] checks an
//! address as it is written. Names are checked when they are resolved: a client that has the [`Resolver`] looks at every
//! address of a name, and connects only to addresses that were looked at.
//!
//! ```
//! use keel_egress::{BadAddress, EgressPolicy};
//!
//! let policy = EgressPolicy::default(); // the open internet alone
//! assert!(policy.admit("https://tools.example/v1").is_ok());
//! assert_eq!(policy.admit("http://tools.example/v1"), Err(BadAddress::NotHttps));
//! assert_eq!(policy.admit("https://10.0.0.7/v1"), Err(BadAddress::NotAllowed));
//!
//! // A cloud's metadata service is refused under every policy.
//! let widest = EgressPolicy { loopback: true, private: true };
//! assert!(widest.admit("http://127.0.0.1:8080/").is_ok());
//! assert_eq!(widest.admit("https://169.254.169.254/latest/meta-data"), Err(BadAddress::NotAllowed));
//! ```
//!
//! | to know | read |
//! |---|---|
//! | how far calls may go | [`EgressPolicy`] |
//! | why an address is refused | [`BadAddress`] |
//! | how a client is held to it | [`Resolver`] |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Which addresses calls may reach beside public ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// This machine, also by plain http: for `keel-local`, never for a function.
    pub loopback: bool,
    /// Private networks: for a deployment with tools in its own network.
    pub private: bool,
}

/// An address that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// It is not a URL.
    #[error("must be an https address")]
    NotAUrl,
    /// Plain http, or another scheme.
    #[error("must be an https address, or http on this machine where that is allowed")]
    NotHttps,
    /// It carries a user or a password.
    #[error("must carry no user and no password")]
    Credentials,
    /// It leads into a network that is not allowed.
    #[error("leads into a network that is not allowed")]
    NotAllowed,
}

impl EgressPolicy {
    /// Checks an address as it is written.
    pub fn admit(self, text: &str) -> Result<Url, BadAddress> {
        let url = Url::parse(text).map_err(|_| BadAddress::NotAUrl)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadAddress::Credentials);
        }
        let literal = match url.host().ok_or(BadAddress::NotAUrl)? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        let here = literal.is_some_and(is_loopback) || url.host_str() == Some("localhost");
        match url.scheme() {
            "https" => {}
            "http" if here && self.loopback => {}
            _ => return Err(BadAddress::NotHttps),
        }
        // A name is checked when it is resolved.
        if literal.is_some_and(|address| !self.allows(address)) {
            return Err(BadAddress::NotAllowed);
        }
        Ok(url)
    }

    /// Whether a connection to this address is allowed.
    pub fn allows(self, address: IpAddr) -> bool {
        match within(address) {
            Within::World => true,
            Within::Private => self.private,
            Within::Loopback => self.loopback,
            Within::Nothing => false,
        }
    }
}

/// The part of the network that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    World,
    Private,
    Loopback,
    /// Link-local (a cloud's metadata service among it), multicast, reserved, documentation.
    Nothing,
}

fn is_loopback(address: IpAddr) -> bool {
    within(address) == Within::Loopback
}

fn within(address: IpAddr) -> Within {
    match address {
        IpAddr::V4(address) => within_v4(address),
        IpAddr::V6(address) => within_v6(address),
    }
}

fn within_v4(address: Ipv4Addr) -> Within {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (127, ..) => Within::Loopback,
        (10, ..) | (192, 168, _) | (172, 16..=31, _) | (100, 64..=127, _) => Within::Private,
        (0 | 224..=255, ..) | (169, 254, _) | (192, 0, 0 | 2) | (192, 88, 99) => Within::Nothing,
        (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => Within::Nothing,
        _ => Within::World,
    }
}

fn within_v6(address: Ipv6Addr) -> Within {
    if let Some(v4) = address.to_ipv4_mapped() {
        return within_v4(v4);
    }
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        within_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Within::Loopback,
        // NAT64 and 6to4 addresses lead to the IPv4 address in them.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        [0xfc00..=0xfdff, ..] => Within::Private,
        [0x2001, 0xdb8, ..] | [0x2001, 0, ..] => Within::Nothing,
        [0x2000..=0x3fff, ..] => Within::World,
        _ => Within::Nothing,
    }
}

/// Resolves names. If one of a name's addresses is not allowed, it gives none of them: such a name is suspicious.
pub struct Resolver(pub EgressPolicy);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.0;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if found.is_empty() || !found.iter().all(|address| egress.allows(address.ip())) {
                return Err(Box::new(BadAddress::NotAllowed).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: EgressPolicy = EgressPolicy { loopback: false, private: false };
    const LOCAL: EgressPolicy = EgressPolicy { loopback: true, private: false };

    #[test]
    fn an_address_leads_to_the_world_by_https_and_nowhere_else() {
        for good in ["https://example.com/x", "https://93.184.216.34/", "https://[2606:2800:220:1::1]:8443/"]
        {
            assert!(NONE.admit(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("example.com", BadAddress::NotAUrl),
            ("http://example.com", BadAddress::NotHttps),
            ("ftp://example.com", BadAddress::NotHttps),
            ("http://127.0.0.1/", BadAddress::NotHttps),
            ("http://localhost/", BadAddress::NotHttps),
            ("https://user:word@example.com", BadAddress::Credentials),
        ] {
            assert_eq!(NONE.admit(bad), Err(why), "{bad}");
        }
        for bad in [
            "https://127.0.0.1/",
            "https://10.0.0.1/",
            "https://172.31.255.255/",
            "https://192.168.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://100.64.0.1/",
            "https://0.0.0.0/",
            "https://[::]/",
            "https://[::1]/",
            "https://[fe80::1]/",
            "https://[fd00::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://[2002:7f00:1::]/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://[ff02::1]/",
            "https://255.255.255.255/",
            "https://198.18.0.1/",
        ] {
            assert_eq!(NONE.admit(bad), Err(BadAddress::NotAllowed), "{bad}");
        }
        assert!(LOCAL.admit("http://127.0.0.1:8080/x").is_ok() && LOCAL.admit("http://localhost/").is_ok());
        assert_eq!(LOCAL.admit("http://10.0.0.1/"), Err(BadAddress::NotHttps));
        assert!(EgressPolicy { private: true, ..NONE }.admit("https://10.0.0.1/").is_ok());
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_not_resolved() {
        let resolve = |egress: EgressPolicy| Resolver(egress).resolve("localhost".parse().unwrap());
        assert!(resolve(NONE).await.is_err());
        assert!(resolve(LOCAL).await.is_ok());
    }
}
