use crate::settings::Settings;
pub struct Logging;
impl Logging {
    pub fn start(_: &Settings) -> anyhow::Result<Self> {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        Ok(Self)
    }
    pub fn set(&self, _: &Settings) {}
}
