use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn supplied(allow: &str, text: &str) -> Result<AddressCheck, AddressError> {
    AllowList::parse(allow).unwrap().check_url(&url(text), UrlTrust::Supplied)
}

#[test]
fn knows_the_public_internet() {
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.88.98.255",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450:4001:800::200e",
        "3ffe::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ];
    let private = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.0",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.0.0",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.0",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:a9fe:a9fe",
        "::ffff:0:8.8.8.8",
        "64:ff9b::10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:1ff:ffff::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::1",
        "2002:808:808::1",
        "3fff::1",
        "3fff:fff:ffff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fdff:ffff::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ];
    for (addresses, expected) in [(&public[..], true), (&private[..], false)] {
        for address in addresses {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }
}

#[test]
fn refuses_every_spelling_of_a_private_address() {
    let spellings = [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://127.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0x7f.0x0.0x0.0x1/",
        "http://0177.0.0.01/",
        "http://127.0.0.1:11434/",
        "HTTP://127.0.0.1/",
        "http:127.0.0.1/",
        "http:\\\\127.0.0.1\\",
        "http:///127.0.0.1/",
        "http://１２７.０.０.１/",
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/",
        "http://12\t7.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]:8080/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/latest/",
        "https://10.0.0.1/",
        "https://192.168.1.1:8443/",
        "http://localhost:8080/",
        "http://LocalHost./",
        "http://a.b.localhost/",
        "http://ⓛocalhost/",
    ];
    for spelling in spellings {
        let decision = supplied("", spelling);
        assert!(matches!(decision, Err(AddressError::NotPublic { .. })), "{spelling}: {decision:?}");
        let operator = AllowList::default().check_url(&url(spelling), UrlTrust::Operator);
        assert_eq!(operator, Ok(AddressCheck::Unchecked), "{spelling}");
    }
}

#[test]
fn leaves_names_and_public_addresses_to_the_checked_client() {
    let targets = [
        "http://example.com/",
        "https://example.com./",
        "http://localhost.example/",
        "http://mylocalhost/",
        "http://metadata.google.internal/",
        "http://127.0.0.1.nip.io/",
        "http://1.1.1.1/",
        "http://[2606:4700:4700::1111]/",
        "http://[::ffff:8.8.8.8]/",
    ];
    for target in targets {
        assert_eq!(supplied("", target), Ok(AddressCheck::CheckResolved), "{target}");
    }
}

#[test]
fn other_schemes_user_info_and_port_0_are_always_refused() {
    let schemes =
        ["ftp://example.com/", "file:///etc/passwd", "data:text/plain,x", "ws://example.com/", "gopher://h/"];
    let users = ["http://user@example.com/", "http://user:pass@example.com/", "https://:pass@example.com/"];
    for trust in [UrlTrust::Operator, UrlTrust::Supplied] {
        let allow = AllowList::parse("example.com").unwrap();
        for text in schemes {
            let decision = allow.check_url(&url(text), trust);
            assert!(matches!(decision, Err(AddressError::Scheme(_))), "{text}: {decision:?}");
        }
        for text in ["http://example.com:0/", "https://8.8.8.8:0/", "http://[2606:4700::1]:0/"] {
            assert_eq!(allow.check_url(&url(text), trust), Err(AddressError::NoPort), "{text}");
        }
        for text in users {
            assert_eq!(allow.check_url(&url(text), trust), Err(AddressError::UserInfo), "{text}");
        }
    }
}

#[test]
fn lists_name_targets() {
    let allow = "localhost:3000, Runtime.internal ,127.0.0.1:11434,10.1.0.0/16, 192.168.7.7,,[fd00::5]:81,fd01::/16,\
                 ::1, münchen.example, [fd02::2], [::ffff:10.9.9.9]:82";
    let open = [
        "http://localhost:3000/x",
        "http://LOCALHOST.:3000/x",
        "http://runtime.internal/",
        "https://runtime.internal./",
        "http://runtime.internal:9999/",
        "http://127.0.0.1:11434/",
        "http://0x7f.1:11434/",
        "http://[::ffff:127.0.0.1]:11434/",
        "http://[fd00::5]:81/",
        "http://xn--mnchen-3ya.example/",
        "http://10.9.9.9:82/",
    ];
    let filtered = [
        "http://10.1.255.255/",
        "http://[::ffff:10.1.2.3]:99/",
        "http://192.168.7.7:1234/",
        "http://[fd01:1::1]/",
        "http://[::1]:5/",
        "http://[fd02::2]:7/",
        "http://localhost:3001/",
        "http://sub.runtime.internal/",
    ];
    let refused = [
        "http://127.0.0.1:11435/",
        "http://127.0.0.1/",
        "http://10.2.0.0/",
        "http://192.168.7.8/",
        "http://[fd00::5]:82/",
        "http://[fd00::5]/",
        "http://[64:ff9b::10.1.0.1]/",
        "http://10.9.9.9/",
    ];
    for text in open {
        assert_eq!(supplied(allow, text), Ok(AddressCheck::Unchecked), "{text}");
    }
    for text in filtered {
        assert_eq!(supplied(allow, text), Ok(AddressCheck::CheckResolved), "{text}");
    }
    for text in refused {
        assert!(matches!(supplied(allow, text), Err(AddressError::NotPublic { .. })), "{text}");
    }
}

#[test]
fn a_port_may_be_the_schemes_own() {
    assert_eq!(supplied("10.0.0.1:80", "http://10.0.0.1/"), Ok(AddressCheck::Unchecked));
    assert_eq!(supplied("10.0.0.1:443", "https://10.0.0.1/"), Ok(AddressCheck::Unchecked));
    assert!(supplied("10.0.0.1:80", "https://10.0.0.1/").is_err());
}

#[test]
fn names_the_entry_at_fault() {
    let faults = [
        "10.0.0.0/33",
        "10.0.0.1/8",
        "10.0.0/8",
        "/8",
        "::ffff:10.0.0.0/104",
        "host/path",
        "http://host",
        "user@host",
        "*.example.com",
        "two words",
        "host:0",
        "host:65536",
        "host:",
        "host:+80",
        "host:port",
        ":80",
        ".",
        "[::1",
        "[::1]:x",
        "[::g]",
        "1.2.3.256",
    ];
    for fault in faults {
        let error = AllowList::parse(&format!("example.com, {fault}, 10.0.0.1")).unwrap_err();
        assert_eq!(error.entry, fault);
        assert!(error.to_string().contains(fault), "{error}");
    }
    assert_eq!(AllowList::parse(" , ,").unwrap(), AllowList::default());
}

#[test]
fn one_refused_address_refuses_the_name() {
    let allow = AllowList::parse("10.0.0.0/8").unwrap();
    let check = |addresses: &[&str]| {
        let addresses: Vec<_> = addresses.iter().map(|a| SocketAddr::new(a.parse().unwrap(), 0)).collect();
        allow.check_resolved("name.example", &addresses)
    };
    assert_eq!(check(&["8.8.8.8", "2606:4700:4700::1111", "10.1.1.1"]), Ok(()));
    let refused = check(&["8.8.8.8", "192.168.0.1", "10.1.1.1"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "name.example is the address 192.168.0.1, which is neither public nor allowed"
    );
    assert!(check(&["::ffff:169.254.169.254"]).is_err());
}
