//! The settings that are one word out of a few: enums with the words they are written as.

use serde_json::Value as Json;

use super::field::Unit;
use super::value::Scalar;

/// Declares an enum together with the words it is written as.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $variant_doc])+ $variant,)+ }

        impl $name {
            /// Every choice, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word that settings, flags and logs use.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::read(text, Unit::None).ok_or_else(|| format!("expected {}", Self::expected(Unit::None)))
            }
        }

        impl Scalar for $name {
            fn read(text: &str, _: Unit) -> Option<Self> {
                Self::ALL.iter().copied().find(|choice| choice.as_str().eq_ignore_ascii_case(text))
            }

            fn write(&self, _: Unit) -> Json {
                Json::from(self.as_str())
            }

            fn expected(_: Unit) -> String {
                let words: Vec<_> = Self::ALL.iter().map(|choice| choice.as_str()).collect();
                format!("one of {}", words.join(", "))
            }
        }
    };
}

choice! {
    /// Where objects come from.
    Source {
        /// Manifests and PEM pairs in folders of this machine.
        Directory = "directory",
        /// The Kubernetes API.
        Kubernetes = "kubernetes",
    }
}

choice! {
    /// What happens when a restart-requiring setting changes.
    RestartMode {
        /// A new worker generation takes over at once.
        Automatic = "automatic",
        /// The change is pending until SIGHUP.
        Manual = "manual",
        /// The change is pending until the whole process is started anew.
        Off = "off",
    }
}

choice! {
    /// The least severe log line that is written.
    LogLevel {
        /// Only what needs a person.
        Error = "error",
        /// What may need a person.
        Warn = "warn",
        /// Changes of state, once each.
        Info = "info",
        /// What was decided, and why.
        Debug = "debug",
        /// Every step.
        Trace = "trace",
    }
}

choice! {
    /// How log lines are written.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

choice! {
    /// A TLS protocol version that may be negotiated.
    TlsVersion {
        /// RFC 5246.
        Tls12 = "TLSv1.2",
        /// RFC 8446.
        Tls13 = "TLSv1.3",
    }
}

choice! {
    /// What becomes of the header `x-forwarded-client-cert`, which tells a backend about client certificates.
    ForwardClientCert {
        /// Removed.
        Sanitize = "sanitize",
        /// Passed on as it came where the client showed a certificate, else removed.
        ForwardOnly = "forward-only",
        /// The client's certificate is appended to what came; removed where it showed none.
        AppendForward = "append-forward",
        /// Replaced by the client's certificate; removed where it showed none.
        SanitizeSet = "sanitize-set",
        /// Passed on as it came.
        AlwaysForwardOnly = "always-forward-only",
    }
}
