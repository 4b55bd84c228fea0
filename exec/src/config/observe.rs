//! Who may watch a run beside its own records.

use super::OutOfRange;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The `[exec.observe]` section; everything is off by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObserveSection {
    /// Event files for TensorBoard: `true` for the folder `tensorboard` beside the other records, or a folder.
    pub tensorboard: Tensorboard,
    /// The address at which Prometheus finds `/metrics`, such as `"127.0.0.1:9464"`; port 0 takes a free one. Empty: none.
    pub prometheus: String,
}

/// Whether event files are written, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tensorboard {
    /// Beside the other records, or not at all.
    Here(bool),
    /// In this folder.
    Folder(PathBuf),
}

impl Default for Tensorboard {
    fn default() -> Self {
        Self::Here(false)
    }
}

impl Tensorboard {
    /// The folder for event files of a run that writes its records to `out`.
    pub fn folder(&self, out: &Path) -> Option<PathBuf> {
        match self {
            Self::Here(false) => None,
            Self::Here(true) => Some(out.join("tensorboard")),
            Self::Folder(folder) => Some(folder.clone()),
        }
    }
}

impl ObserveSection {
    /// What is wrong, one entry a key.
    pub(super) fn problems(&self) -> Option<OutOfRange> {
        let is_address = self.prometheus.parse::<SocketAddr>().is_ok();
        let is_wrong = !self.prometheus.is_empty() && !is_address;
        is_wrong.then(|| OutOfRange {
            key: "exec.observe.prometheus",
            value: format!("{:?}", self.prometheus),
            limit: "must be an IP address of this machine and a port".into(),
            way_out: "write one such as \"127.0.0.1:9464\"",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_files_go_where_they_are_told() {
        let out = Path::new("run");
        let folder = |text: &str| {
            let section: ObserveSection = serde_json::from_str(text).unwrap();
            section.tensorboard.folder(out)
        };
        assert_eq!(folder("{}"), None);
        assert_eq!(
            folder(r#"{"tensorboard": true}"#),
            Some("run/tensorboard".into())
        );
        assert_eq!(folder(r#"{"tensorboard": "tb"}"#), Some("tb".into()));
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        let section = |prometheus: &str| ObserveSection {
            prometheus: prometheus.into(),
            ..ObserveSection::default()
        };
        assert_eq!(section("127.0.0.1:0").problems(), None);
        for wrong in ["9464", "127.0.0.1", "127.0.0.1:x"] {
            assert_eq!(
                section(wrong).problems().unwrap().key,
                "exec.observe.prometheus"
            );
        }
    }
}
