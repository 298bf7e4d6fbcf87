//! The ports that the gateway listens on.

use super::Settings;

impl Settings {
    /// Each port that was chosen, with the setting that chose it. Those that the system chooses (0) are not among them.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, u16)> {
        let listeners = [
            ("http-port", Some(self.http_port)),
            ("https-port", Some(self.https_port)),
            ("admin-port", Some(self.admin_port)),
            ("mesh-port", self.mesh_port),
            ("hbone-port", self.hbone_port),
            ("ca-port", self.ca.then_some(self.ca_port)),
            ("validating-webhook", self.validating_webhook.map(|address| address.port())),
        ];
        listeners.into_iter().filter_map(|(key, port)| Some((key, port.filter(|port| *port != 0)?)))
    }
}
