//! `admission.k8s.io/v1 AdmissionReview`: what is asked, as far as it is read, and the answer.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Verdict;
use crate::store::objects::Node;

/// The API server cuts warnings at this length…
const LONGEST_WARNING: usize = 256;
/// …and all of them together at some thousand characters.
const MOST_WARNINGS: usize = 12;
/// Characters of the reason for a refusal.
const LONGEST_MESSAGE: usize = 2000;

/// A question.
pub struct Review<'a> {
    pub uid: Cow<'a, str>,
    /// The object as it will be; `None` where it is about to be deleted or is of another kind.
    pub candidate: Option<Node<'a>>,
    /// The object as it was.
    pub before: Option<Node<'a>>,
}

/// Why a text is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    #[error("not an AdmissionReview in JSON")]
    Malformed,
    #[error("only admission.k8s.io/v1 is answered")]
    Version,
    #[error("the review has no request")]
    NoRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    kind: GroupVersionKind,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    object: Option<Node<'a>>,
    #[serde(borrow, default)]
    old_object: Option<Node<'a>>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

impl<'a> Review<'a> {
    pub fn parse(text: &'a [u8]) -> Result<Self, ReviewError> {
        let envelope: Envelope = serde_json::from_slice(text).map_err(|_| ReviewError::Malformed)?;
        if (&*envelope.api_version, &*envelope.kind) != ("admission.k8s.io/v1", "AdmissionReview") {
            return Err(ReviewError::Version);
        }
        let request = envelope.request.ok_or(ReviewError::NoRequest)?;
        let GroupVersionKind { group, version, kind } = &request.kind;
        let ours = (group.as_str(), version.as_str(), kind.as_str())
            == ("networking.k8s.io", "v1", "Ingress")
            && matches!(&*request.operation, "CREATE" | "UPDATE");
        let present = |node: Option<Node<'a>>| node.filter(|node| ours && *node != Node::Null);
        Ok(Self { uid: request.uid, candidate: present(request.object), before: present(request.old_object) })
    }

    /// The text of the answer.
    pub fn answer(&self, verdict: &Verdict) -> String {
        let mut response = json!({ "uid": self.uid, "allowed": verdict.refusals.is_empty() });
        if !verdict.refusals.is_empty() {
            let message = shortened(&verdict.refusals.join(" "), LONGEST_MESSAGE);
            response["status"] = json!({ "code": 422, "reason": "Invalid", "message": message });
        }
        let warnings = verdict.warnings.iter().take(MOST_WARNINGS);
        let mut warnings: Vec<_> = warnings.map(|warning| shortened(warning, LONGEST_WARNING)).collect();
        if let Some(more) = verdict.warnings.len().checked_sub(MOST_WARNINGS).filter(|more| *more > 0) {
            warnings.push(format!("and {more} more findings of this kind"));
        }
        if !warnings.is_empty() {
            response["warnings"] = warnings.into_iter().map(Value::from).collect();
        }
        let review =
            json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        review.to_string()
    }
}

fn shortened(text: &str, longest: usize) -> String {
    match text.chars().count() > longest {
        true => text.chars().take(longest - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(operation: &str, kind: &str) -> String {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "7",
                "kind": { "group": "networking.k8s.io", "version": "v1", "kind": kind },
                "operation": operation,
                "object": { "metadata": { "name": "web" } },
                "oldObject": null,
            },
        })
        .to_string()
    }

    fn answered(verdict: &Verdict) -> Value {
        let text = review("CREATE", "Ingress");
        serde_json::from_str(&Review::parse(text.as_bytes()).unwrap().answer(verdict)).unwrap()
    }

    #[test]
    fn only_an_ingress_that_is_written_is_a_candidate() {
        let has_candidate =
            |text: String| Review::parse(text.as_bytes()).map(|review| review.candidate.is_some());
        assert_eq!(has_candidate(review("CREATE", "Ingress")), Ok(true));
        assert_eq!(has_candidate(review("UPDATE", "Ingress")), Ok(true));
        assert_eq!(has_candidate(review("DELETE", "Ingress")), Ok(false));
        assert_eq!(has_candidate(review("CREATE", "Service")), Ok(false));
        let old = review("CREATE", "Ingress")
            .replace("k8s.io/v1\",\"kind\":\"Adm", "k8s.io/v1beta1\",\"kind\":\"Adm");
        assert_eq!(has_candidate(old), Err(ReviewError::Version));
        assert_eq!(has_candidate("{".into()), Err(ReviewError::Malformed));
        let empty = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#;
        assert_eq!(has_candidate(empty.into()), Err(ReviewError::NoRequest));
    }

    #[test]
    fn the_answer_carries_the_uid_and_says_why() {
        let fine = answered(&Verdict::default());
        assert_eq!(fine["response"], json!({ "uid": "7", "allowed": true }));
        let verdict = Verdict { refusals: vec!["No.".into()], warnings: vec!["Hm.".into()] };
        let refused = answered(&verdict);
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "No.");
        assert_eq!(refused["response"]["warnings"], json!(["Hm."]));
    }

    #[test]
    fn warnings_keep_to_the_limits_of_the_api_server() {
        let verdict = Verdict { refusals: Vec::new(), warnings: vec!["ü".repeat(1000); 20] };
        let answer = answered(&verdict);
        let warnings = answer["response"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), MOST_WARNINGS + 1);
        assert_eq!(warnings[0].as_str().unwrap().chars().count(), LONGEST_WARNING);
        assert_eq!(warnings[MOST_WARNINGS], "and 8 more findings of this kind");
    }
}
