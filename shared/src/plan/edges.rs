//! Bucket edges: given, by quantile, or optimal.

use serde::{Deserialize, Serialize};

/// Upper edges of the buckets, strictly rising; bucket b holds lengths above edge b-1 and up to edge b. [tokens]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Edges(Vec<u32>);

/// Why edges cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EdgesError {}
