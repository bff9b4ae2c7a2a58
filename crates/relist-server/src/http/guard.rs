//! Who is let in: `Host` and `Origin`, against DNS rebinding.

use http::{HeaderMap, Uri, header};

use crate::options::{Allowed, HttpOptions};

/// The checks of one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    hosts: Allowed,
    origins: Allowed,
    /// Whether only this machine can reach the server, as far as we know.
    local: bool,
}

/// The name in `name:port` and `[v6]:port`.
fn name(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|r| r.find(']')) {
        Some(end) => &authority[..end + 2],
        None => authority.split_once(':').map_or(authority, |(n, _)| n),
    }
}

fn is_local(authority: &str) -> bool {
    let rest = &authority[name(authority).len()..];
    let port = rest
        .strip_prefix(':')
        .is_none_or(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let known = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .any(|local| name(authority).eq_ignore_ascii_case(local));
    known && port && (rest.is_empty() || rest.starts_with(':'))
}

/// One value of a header; `Err` when it is repeated or not text.
fn single(headers: &HeaderMap, name: header::HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

impl Guard {
    pub(crate) fn new(options: &HttpOptions, local: bool) -> Self {
        Self {
            hosts: options.hosts.clone(),
            origins: options.origins.clone(),
            local,
        }
    }

    /// The reason for which a request is not let in.
    pub(crate) fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
        let Ok(host) = single(headers, header::HOST) else {
            return Some("Forbidden: the Host header is malformed");
        };
        // HTTP/2 has the host in the request line.
        let host = uri.authority().map(http::uri::Authority::as_str).or(host);
        let host_is_known = match (&self.hosts, host) {
            (Allowed::Any, _) | (_, None) => true,
            (Allowed::Auto, Some(host)) => !self.local || is_local(host),
            (Allowed::Only(list), Some(host)) => list
                .iter()
                .any(|a| a.eq_ignore_ascii_case(host) || a.eq_ignore_ascii_case(name(host))),
        };
        if !host_is_known {
            return Some("Forbidden: the Host header is not one of this server's names");
        }
        let Ok(origin) = single(headers, header::ORIGIN) else {
            return Some("Forbidden: the Origin header is malformed");
        };
        let origin = origin?;
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        let origin_is_known = match (&self.origins, authority) {
            (Allowed::Any, _) => true,
            (Allowed::Auto, Some(authority)) if self.local => is_local(authority),
            (Allowed::Auto, Some(authority)) => {
                host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
            }
            (Allowed::Auto, None) => false,
            (Allowed::Only(list), _) => list.iter().any(|a| a.eq_ignore_ascii_case(origin)),
        };
        (!origin_is_known).then_some("Forbidden: requests from this Origin are not accepted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &HttpOptions, local: bool, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a value"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a value"));
        }
        let uri = Uri::from_static("/mcp");
        let refusal = Guard::new(options, local).refusal(&uri, &headers);
        refusal.is_some()
    }

    #[test]
    fn a_server_on_loopback_knows_only_local_names() {
        let check =
            |host: &str, origin: Option<&str>| refused(&HttpOptions::default(), true, host, origin);
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:3000",
            "[::1]:3000",
            "[::1]",
        ] {
            assert!(!check(host, None), "{host}");
            assert!(!check(host, Some(&format!("http://{host}"))), "{host}");
        }
        for other in [
            "evil.example.com",
            "localhost.evil.com",
            "127.0.0.1.evil.com:80",
            "[::2]",
            "[::1].evil.com",
            "localhost:80@evil.com",
        ] {
            assert!(check(other, None), "{other}");
            assert!(
                check("localhost", Some(&format!("http://{other}"))),
                "{other}"
            );
        }
        assert!(check("localhost", Some("null")));
    }

    #[test]
    fn lists_decide_where_they_are_given() {
        let options = HttpOptions::default()
            .hosts(Allowed::Only(vec!["api.example.com".into()]))
            .origins(Allowed::Only(vec!["https://app.example.com".into()]));
        let check = |host: &str, origin: Option<&str>| refused(&options, false, host, origin);
        assert!(!check("api.example.com:443", None));
        assert!(!check("api.example.com", Some("https://app.example.com")));
        assert!(check("api.example.com", Some("http://app.example.com")));
        assert!(check("localhost", None));
    }

    #[test]
    fn elsewhere_an_origin_has_to_be_the_host() {
        let check = |origin: Option<&str>| {
            refused(&HttpOptions::default(), false, "a.example:8080", origin)
        };
        assert!(!check(None));
        assert!(!check(Some("http://a.example:8080")));
        assert!(check(Some("http://b.example:8080")));
    }
}
