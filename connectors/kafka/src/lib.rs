//! A seekable Kafka source with exact positions.

