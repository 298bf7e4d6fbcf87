use crate::diagnostics::Diagnostic;
use std::sync::Arc;
#[derive(Clone)]
pub struct PendingRestart {
    pub key: String,
    pub reason: String,
}
impl From<&crate::settings::Change> for PendingRestart {
    fn from(c: &crate::settings::Change) -> Self {
        Self { key: c.key.to_string(), reason: String::new() }
    }
}
pub struct SourceStatus {
    pub name: &'static str,
    pub synced: bool,
    pub last_error: Option<String>,
}
pub struct View {
    pub ready: bool,
    pub draining: bool,
    pub pending_restart: Vec<PendingRestart>,
    pub last_restart_error: Option<String>,
    pub diagnostics: Arc<[Diagnostic]>,
    pub sources: Vec<SourceStatus>,
    pub started: i64,
}
impl Default for View {
    fn default() -> Self {
        Self {
            ready: false,
            draining: false,
            pending_restart: vec![],
            last_restart_error: None,
            diagnostics: Arc::new([]),
            sources: vec![],
            started: 0,
        }
    }
}
