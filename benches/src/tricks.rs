//! The optimizations of the token path, each with the options that leave it out.

use agent_client::relay::RelayOptions;

/// A variant of the program: the options without one optimization.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Name in the table and on the command line of `relay_over`.
    pub name: &'static str,
    /// Returns the variant's options.
    pub options: fn() -> RelayOptions,
}

/// The variant that the others are compared with.
pub const ALL: Variant = Variant { name: "all", options: || RelayOptions::FAST };

/// The other variants. The first repeats the reference and shows the noise.
pub const VARIANTS: [Variant; 12] = [
    Variant { name: "all again", options: || RelayOptions::FAST },
    Variant {
        name: "without delta template",
        options: || RelayOptions { delta_template: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without coalescing waker",
        options: || RelayOptions { coalescing_waker: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without event prefix",
        options: || RelayOptions { event_prefix: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without merged events",
        options: || RelayOptions { merged_events: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without early first delta",
        options: || RelayOptions { early_first_delta: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without joined writes",
        options: || RelayOptions { joined_writes: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without lazy span",
        options: || RelayOptions { lazy_span: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without lazy timer",
        options: || RelayOptions { lazy_timer: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without deferred access log",
        options: || RelayOptions { deferred_access_log: false, ..RelayOptions::FAST },
    },
    Variant {
        name: "without thread per core",
        options: || RelayOptions { thread_per_core: false, ..RelayOptions::FAST },
    },
    Variant { name: "none", options: || RelayOptions::PLAIN },
];

/// Returns the variant of this name.
pub fn variant(name: &str) -> Option<Variant> {
    VARIANTS.into_iter().chain([ALL]).find(|variant| variant.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_is_found_by_its_name_and_has_options_of_its_own() {
        let same = VARIANTS.map(|this| {
            assert_eq!((variant(this.name).expect("a variant").options)(), (this.options)());
            VARIANTS.iter().filter(|other| (other.options)() == (this.options)()).count()
        });
        assert_eq!(same, [1; VARIANTS.len()]);
    }
}
