//! `docs/annotations.md`, made from the lists.

use std::fmt::Write;

use super::{ANNOTATIONS, Annotation, FOREIGN, OWN_PREFIX, Treatment};

/// The whole page as Markdown.
pub fn documentation() -> String {
    let mut page = String::from(
        "# Annotations\n\n\
         <!-- Generated from src/annotations; to write it anew: \
         PORTCULLIS_UPDATE_DOCS=1 cargo test --lib annotations -->\n\n",
    );
    let _ = writeln!(
        page,
        "An Ingress may carry these annotations under the prefix of ingress-nginx,\n\
         `nginx.ingress.kubernetes.io/` (setting `annotations-prefix`), or under `{OWN_PREFIX}/`, which wins where\n\
         both are there. A value that cannot be used is reported as `InvalidAnnotation` and ignored; the other\n\
         annotations of the Ingress still count. A name that does not exist is reported as `UnknownAnnotation`.\n"
    );
    for annotation in ANNOTATIONS {
        section(&mut page, *annotation);
    }
    page.push_str("## Annotations of ingress-nginx without effect\n");
    for (treatment, introduction) in [
        (Treatment::NoEffect, "Accepted in silence; they tune what only nginx has:"),
        (Treatment::Unsupported, "Not supported yet; reported as the warning `UnsupportedAnnotation`:"),
        (
            Treatment::Unprotected,
            "Not supported yet, and requests are served **without the protection** they ask for; reported as the \
             error `UnsupportedAnnotation`:",
        ),
        (Treatment::Refused, "Code for nginx, never run; reported as the error `SnippetRefused`:"),
    ] {
        let _ = writeln!(page, "\n{introduction}\n");
        for (name, _) in FOREIGN.iter().filter(|(_, each)| *each == treatment) {
            let _ = writeln!(page, "- `{name}`");
        }
    }
    page
}

fn section(page: &mut String, annotation: &dyn Annotation) {
    let _ = writeln!(
        page,
        "## `{name}`\n\n{doc}\n\n- Value: {expects}\n- Without it: {default}\n- Example: `{name}: \"{example}\"`\n",
        name = annotation.name(),
        doc = annotation.doc(),
        expects = annotation.expects(),
        default = annotation.default(),
        example = annotation.example(),
    );
}
