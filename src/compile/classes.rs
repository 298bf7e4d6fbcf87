//! Which Ingresses are ours, by their class.
//!
//! `spec.ingressClassName` decides where there is one: an IngressClass of that name must have our controller;
//! where no such IngressClass exists, as is usual for manifests on one machine, the name itself must be ours.
//! Then the old annotation, which must be the name of our class. An Ingress with neither is served if our
//! IngressClass is the default one or a setting says so, and always with the directory source. With the setting
//! `ingress-class-by-name` an IngressClass of the name of ours is ours whoever its controller is.

use crate::annotations::is_canary;
use crate::settings::{Settings, choices::Source};
use crate::store::Store;
use crate::store::objects::Ingress;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// The classes of one store under one set of settings.
pub(super) struct Classes<'a> {
    store: &'a Store,
    settings: &'a Settings,
    serve_classless: bool,
}

/// Why an Ingress is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotServed {
    /// Its class belongs to another controller.
    Foreign,
    /// Its class does not exist and does not have the name of ours.
    Unknown,
    Classless,
}

impl<'a> Classes<'a> {
    pub fn new(store: &'a Store, settings: &'a Settings) -> Self {
        let ours = |controller: &str| controller == settings.controller_class;
        let default_is_ours = store.ingress_classes().any(|class| class.default && ours(&class.controller));
        let serve_classless =
            default_is_ours || settings.watch_ingress_without_class || settings.source == Source::Directory;
        Self { store, settings, serve_classless }
    }

    /// Whether this Ingress has a say in what is served.
    pub fn serves(&self, ingress: &Ingress) -> bool {
        self.refusal(ingress).is_none()
    }

    /// The same for routes and certificates, of which a canary brings none.
    pub fn serves_as_main(&self, ingress: &Ingress) -> bool {
        self.serves(ingress) && !is_canary(&ingress.metadata, self.settings)
    }

    pub fn refusal(&self, ingress: &Ingress) -> Option<NotServed> {
        match (&ingress.class, ingress.metadata.annotations.get(CLASS_ANNOTATION)) {
            (Some(class), _) => self.refusal_of_class(class),
            (None, Some(class)) if *class == self.settings.ingress_class => None,
            (None, Some(_)) => Some(NotServed::Foreign),
            (None, None) if self.serve_classless => None,
            (None, None) => Some(NotServed::Classless),
        }
    }

    fn refusal_of_class(&self, name: &str) -> Option<NotServed> {
        match self.store.ingress_class(name) {
            Some(class) if class.controller == self.settings.controller_class => None,
            Some(_) if self.settings.ingress_class_by_name && name == self.settings.ingress_class => None,
            Some(_) => Some(NotServed::Foreign),
            None if name == self.settings.ingress_class => None,
            None => Some(NotServed::Unknown),
        }
    }
}
