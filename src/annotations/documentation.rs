//! `docs/annotations.md`, made from the lists.

use std::fmt::Write;

use super::{ANNOTATIONS, Annotation, FOREIGN, OWN_PREFIX, Treatment, Unusable};

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
         both are there. A value that cannot be used is reported as `InvalidAnnotation` and ignored, unless the\n\
         section of the annotation says otherwise; the other annotations of the Ingress still count. A name that does not exist is reported as `UnknownAnnotation`.\n"
    );
    for annotation in ANNOTATIONS {
        section(&mut page, *annotation);
    }
    page.push_str("## Annotations of ingress-nginx without effect\n");
    for (is_listed, introduction) in LISTS {
        let _ = writeln!(page, "\n{introduction}\n");
        for (name, _) in FOREIGN.iter().filter(|(_, treatment)| is_listed(treatment)) {
            let _ = writeln!(page, "- `{name}`");
        }
    }
    page
}

type List = (fn(&Treatment) -> bool, &'static str);

const LISTS: [List; 5] = [
    (
        |treatment| matches!(treatment, Treatment::NoEffect),
        "Accepted in silence; they tune what only nginx has:",
    ),
    (
        |treatment| matches!(treatment, Treatment::Unsupported),
        "Not supported yet; reported as the warning `UnsupportedAnnotation`:",
    ),
    (
        |treatment| matches!(treatment, Treatment::Protection { .. }),
        "Not supported yet, and meant to keep somebody out: the routes of the Ingress answer **503** rather than\n\
         being served without this protection. Reported as the error `UnsupportedAnnotation`; a value that asks\n\
         for nothing (empty, or `off`, `false`, `0` where the annotation has such a value) closes nothing:",
    ),
    (
        |treatment| matches!(treatment, Treatment::Code),
        "Code for nginx, never run. It may hold what keeps somebody out, so the routes of the Ingress answer\n\
         **503** as above; reported as the error `SnippetRefused`:",
    ),
    (
        |treatment| matches!(treatment, Treatment::UnrelatedCode),
        "Code for nginx, never run, that has nothing to do with routes; reported as the error `SnippetRefused`:",
    ),
];

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
    if let Unusable::Strict { consequence, .. } = annotation.unusable() {
        // The list goes on.
        page.pop();
        let _ = writeln!(page, "- With a value that cannot be used: {}\n", decapitalised(consequence));
    }
}

fn decapitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
}
