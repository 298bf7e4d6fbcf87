//! The Prometheus text format, version 0.0.4, written by `metrics`.
//!
//! Written here and not by prometheus-client because that one ends the name of every counter in `_total`, and
//! dashboards made for ingress-nginx ask for `nginx_ingress_controller_requests`. Invariant: a family is
//! announced once, right before its first sample, and a sample has exactly the labels of its family.

use std::fmt::{Display, Write};

use super::families::{Family, Kind};

/// Counts of observations up to each bound, and their sum, in the unit of the family.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Upper bound and count up to it; the last bound is infinite and its count is that of all observations.
    pub buckets: Vec<(f64, u64)>,
    pub sum: f64,
}

/// Text in the making.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    /// Labels that every sample of an ingress-nginx family starts with, as they are written.
    constant: String,
}

/// Samples of one family.
pub struct Samples<'a> {
    out: &'a mut Exposition,
    family: &'static Family,
    announced: bool,
}

impl Exposition {
    /// Starts a text in which the families that ingress-nginx has carry `constant` labels.
    pub fn new(constant: &[(&str, &str)]) -> Self {
        let mut exposition = Self::default();
        for (name, value) in constant {
            write_label(&mut exposition.constant, name, value);
        }
        exposition
    }

    /// Starts a family; it does not show before it has a sample.
    pub fn family(&mut self, family: &'static Family) -> Samples<'_> {
        Samples { out: self, family, announced: false }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

impl Samples<'_> {
    /// Adds a sample with the values of the family's labels, in their order.
    pub fn add(&mut self, labels: &[&str], value: impl Display) {
        let labels = self.labels(labels);
        self.sample("", &labels, None, value);
    }

    /// Adds the samples of a histogram.
    pub fn distribution(&mut self, labels: &[&str], distribution: &Distribution) {
        let labels = self.labels(labels);
        let mut count = 0;
        for (bound, up_to) in &distribution.buckets {
            self.sample("_bucket", &labels, Some(*bound), up_to);
            count = *up_to;
        }
        self.sample("_sum", &labels, None, distribution.sum);
        self.sample("_count", &labels, None, count);
    }

    /// Labels as they are written, each with a comma after it: once for all samples of a histogram.
    fn labels(&self, values: &[&str]) -> String {
        debug_assert_eq!(values.len(), self.family.labels.len(), "{}", self.family.name);
        let mut text = String::new();
        if self.family.is_of_ingress_nginx() {
            text.push_str(&self.out.constant);
        }
        for (name, value) in self.family.labels.iter().zip(values) {
            write_label(&mut text, name, value);
        }
        text
    }

    fn sample(&mut self, suffix: &str, labels: &str, bound: Option<f64>, value: impl Display) {
        self.announce();
        let text = &mut self.out.text;
        text.push_str(self.family.name);
        text.push_str(suffix);
        // Writing to a string cannot fail.
        let _ = match (bound, labels.strip_suffix(',')) {
            (Some(bound), _) if bound.is_finite() => writeln!(text, "{{{labels}le=\"{bound}\"}} {value}"),
            (Some(_), _) => writeln!(text, "{{{labels}le=\"+Inf\"}} {value}"),
            (None, Some(labels)) => writeln!(text, "{{{labels}}} {value}"),
            (None, None) => writeln!(text, " {value}"),
        };
    }

    fn announce(&mut self) {
        if !std::mem::replace(&mut self.announced, true) {
            let Family { name, help, kind, .. } = self.family;
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(self.out.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
    }
}

fn write_label(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    let mut rest = value;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        let (plain, special) = rest.split_at(at);
        text.push_str(plain);
        text.push_str(match special.as_bytes().first() {
            Some(b'\n') => "\\n",
            Some(b'"') => "\\\"",
            _ => "\\\\",
        });
        rest = special.get(1..).unwrap_or_default();
    }
    text.push_str(rest);
    text.push_str("\",");
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLAIN: Family = Family { name: "portcullis_x", kind: Kind::Gauge, labels: &[], help: "X." };
    static LABELLED: Family =
        Family { name: "nginx_ingress_controller_y", kind: Kind::Histogram, labels: &["path"], help: "Y." };

    #[test]
    fn a_family_without_samples_does_not_show() {
        let mut out = Exposition::new(&[]);
        out.family(&PLAIN);
        assert_eq!(out.into_text(), "");
    }

    #[test]
    fn samples_are_written_as_prometheus_reads_them() {
        let mut out = Exposition::new(&[("controller_pod", "p")]);
        out.family(&PLAIN).add(&[], 1.5);
        let distribution = Distribution { buckets: vec![(0.005, 1), (f64::INFINITY, 3)], sum: 2.25 };
        out.family(&LABELLED).distribution(&["/a\"\\\nb"], &distribution);
        assert_eq!(
            out.into_text(),
            "# HELP portcullis_x X.\n\
             # TYPE portcullis_x gauge\n\
             portcullis_x 1.5\n\
             # HELP nginx_ingress_controller_y Y.\n\
             # TYPE nginx_ingress_controller_y histogram\n\
             nginx_ingress_controller_y_bucket{controller_pod=\"p\",path=\"/a\\\"\\\\\\nb\",le=\"0.005\"} 1\n\
             nginx_ingress_controller_y_bucket{controller_pod=\"p\",path=\"/a\\\"\\\\\\nb\",le=\"+Inf\"} 3\n\
             nginx_ingress_controller_y_sum{controller_pod=\"p\",path=\"/a\\\"\\\\\\nb\"} 2.25\n\
             nginx_ingress_controller_y_count{controller_pod=\"p\",path=\"/a\\\"\\\\\\nb\"} 3\n"
        );
    }
}
