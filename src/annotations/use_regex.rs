use super::{Annotation, AnnotationError, PolicyDraft, values};

/// `use-regex`.
pub struct UseRegex;

impl Annotation for UseRegex {
    fn name(&self) -> &'static str {
        "use-regex"
    }

    fn doc(&self) -> &'static str {
        "Makes all paths of the hosts of the Ingress regular expressions, those of other Ingresses too, as ingress-nginx does; an Ingress that is affected without asking for it is told (`PathsArePatterns`). Such a path is for every request whose path begins with a match, whatever its case and `pathType`; of several the longest counts, and of those that are equally long the last in the order of text. What is matched is the canonical path: in ASCII, with escapes as `%2F`. Look-around and references to groups do not exist; a path with them is left out and reported (`InvalidPattern`)."
    }

    fn expects(&self) -> &'static str {
        "`true` or `false`"
    }

    fn example(&self) -> &'static str {
        "true"
    }

    fn default(&self) -> &'static str {
        "`false`"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.rewriting.use_regex = values::boolean(value)?;
        Ok(())
    }
}
