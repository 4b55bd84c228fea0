//! Steps composed from different buckets.
